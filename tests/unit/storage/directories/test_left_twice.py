"""A partition that was left in two log directories by moves, the first of which could not be cleared up behind."""

from __future__ import annotations

import pytest
from test_moved_partitions import PATHS, EndedError, Node, ended, prepared

from barnabas.log.errors import LogStoreError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_log import FutureLog
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.errors import DirectoryOffline


def move_and_leave(node: Node, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left behind stays."""

    def let_go(former: LogDirectory, left: PartitionLog) -> None:
        left.discard()
        former.forget((left.topic, left.partition))

    with monkeypatch.context() as patched:
        patched.setattr("test_moved_partitions.retire", let_go)
        node.move(path)


def on_disk(node: Node) -> list[tuple[str, ...]]:
    return [tuple(sorted(node.files.disk.list_directories(path))) for path in PATHS]


@pytest.mark.parametrize("last", [0, 2])
def test_neither_is_taken_for_the_partition(last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was empty when it was left first, and nothing of the checkpoints tells of what came later."""
    node = Node()
    move_and_leave(node, PATHS[1], monkeypatch)
    node.append(10)
    with monkeypatch.context() as patched:
        patched.setattr(FutureLog, "_take_place", ended)
        with pytest.raises(EndedError):
            node.move(PATHS[last])
    before = on_disk(node)
    node.directories.abandon()
    for _ in range(2):
        with pytest.raises(LogStoreError, match="may both be t-0: move one of them away"):
            node.open()
        assert on_disk(node) == before
    (older,) = (name for name in before[0] if name.endswith("-moving"))
    node.files.disk.remove_tree(f"{PATHS[0]}/{older}")
    node.open()
    assert (node.path, node.log.log_end_offset) == (PATHS[1], len(node.values))


def test_nothing_comes_back_while_a_log_directory_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It moved on to that one, and more was appended there."""
    node = prepared()
    move_and_leave(node, PATHS[1], monkeypatch)
    node.move(PATHS[2])
    node.append(5)
    end_offset = node.log.log_end_offset
    node.directories.abandon()
    node.files.at, node.files.unreadable = -1, PATHS[2]
    with pytest.raises(DirectoryOffline):
        node.open()
    node.directories.abandon()
    node.files.unreadable = ""
    node.open()
    assert (node.path, node.log.log_end_offset) == (PATHS[2], end_offset)
