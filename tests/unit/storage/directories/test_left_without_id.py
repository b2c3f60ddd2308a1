"""What a move left has lost its topic's id: the power went before that had reached the disk, and so before anything of
the log was durable there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest
from test_left_twice import move_and_leave
from test_moved_partitions import PATHS, EndedError, Node, ended, prepared

from barnabas.log.moving import settling
from barnabas.log.moving.future_log import FutureLog


def lose_id(node: Node, path: str, *, is_empty: bool) -> str:
    """Of what was left in the log directory; returns where that is. The disk has the file's name, or not even that."""
    (left,) = [name for name in node.files.disk.list_directories(path) if name.endswith("-moving")]
    metadata = f"{path}/{left}/partition.metadata"
    if is_empty:
        node.files.disk.close(node.files.disk.open(metadata, os.O_WRONLY | os.O_TRUNC))
    else:
        node.files.disk.unlink(metadata)
    return f"{path}/{left}"


@pytest.mark.parametrize("is_empty", [False, True])
def test_it_goes_and_the_partition_can_move_again(is_empty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node = prepared()
    move_and_leave(node, PATHS[1], monkeypatch)
    node.directories.abandon()
    lose_id(node, PATHS[0], is_empty=is_empty)
    node.reopened()
    node.move(PATHS[0])
    node.move(PATHS[1])
    node.directories.abandon()
    node.reopened()


@pytest.mark.parametrize("way", [[0], [2], [2, 0]])
def test_it_goes_too_once_the_partition_has_moved_on(
    way: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refused to remove it when the node started."""
    node = prepared()
    move_and_leave(node, PATHS[1], monkeypatch)
    node.directories.abandon()
    lose_id(node, PATHS[0], is_empty=True)
    with monkeypatch.context() as patch:
        patch.setattr(settling, "remove_left", refuse)
        node.open()
    for number in way:
        node.move(PATHS[number])
    node.directories.abandon()
    node.reopened()
    node.move(PATHS[1])
    node.directories.abandon()
    node.reopened()


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_two_of_them_go(monkeypatch: pytest.MonkeyPatch) -> None:
    node = prepared()
    move_and_leave(node, PATHS[1], monkeypatch)
    move_and_leave(node, PATHS[2], monkeypatch)
    node.directories.abandon()
    for path in PATHS[:2]:
        lose_id(node, path, is_empty=True)
    node.reopened()


def test_it_is_the_partition_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left, and the power went before the partition had its name where it was moving to."""
    node = prepared()
    with monkeypatch.context() as patch:
        patch.setattr(FutureLog, "_take_place", ended)
        with pytest.raises(EndedError):
            node.move(PATHS[1])
    node.directories.abandon()
    lose_id(node, PATHS[0], is_empty=True)
    node.reopened()
    assert node.path == PATHS[0]
