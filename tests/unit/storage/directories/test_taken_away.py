"""The log directory that a partition moved to is taken away before what it left is gone."""

from __future__ import annotations

import contextlib
import random

import pytest
from test_moved_partitions import KEY, PATHS, Node, ending, prepared, read

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_log import FutureLog
from barnabas.storage.directories.errors import DirectoryOffline

WITHOUT_HOME = (PATHS[0], PATHS[2])


def left_behind(monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose partition has moved, with what it left still there, and no checkpoint that tells of that."""
    node = prepared()
    with monkeypatch.context() as patch:
        patch.setattr("test_moved_partitions.retire", lambda *_: None)
        node.move(PATHS[1])
    return node


def check_is_back(node: Node) -> None:
    """As it was when it was left: without what came later, and without what was deleted before."""
    found = read(node.log)
    assert (node.path, node.log.log_start_offset) == (PATHS[0], node.start)
    assert found == dict(enumerate(node.values[node.start : node.start + len(found)], start=node.start))
    assert len(found) > 10


@pytest.mark.parametrize("is_clean", [False, True])
def test_what_is_back_begins_where_it_began(monkeypatch: pytest.MonkeyPatch, is_clean: bool) -> None:
    """The directory that it moved to is taken away before what it left is gone: nothing deleted comes back."""
    node = left_behind(monkeypatch)
    node.directories.write_checkpoints(PATHS[0])  # upkeep does
    if is_clean:
        node.directories.close({KEY: node.log.log_end_offset})
    else:
        node.directories.abandon()
    monkeypatch.setattr("test_moved_partitions.PATHS", WITHOUT_HOME)
    node.open()
    check_is_back(node)
    node.directories.close({KEY: node.log.log_end_offset})
    node.open()
    check_is_back(node)


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
def test_so_it_does_where_that_start_ends_anywhere(
    monkeypatch: pytest.MonkeyPatch, loses_power: bool
) -> None:
    for at in range(30):
        node = left_behind(monkeypatch)
        node.log.flush()
        node.directories.close({KEY: node.log.log_end_offset})
        with monkeypatch.context() as patch:
            patch.setattr("test_moved_partitions.PATHS", WITHOUT_HOME)
            with ending(node, at):
                node.open()
            if loses_power:
                node.files.disk.lose_power(random.Random(at))
            else:
                node.directories.abandon()
            node.files.at = -1
            node.open()
            check_is_back(node)


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
def test_what_a_move_before_could_not_clear_up_brings_nothing_deleted_back(
    monkeypatch: pytest.MonkeyPatch, loses_power: bool
) -> None:
    for at in range(30, 90, 3):
        node = prepared()
        with monkeypatch.context() as patch:
            patch.setattr(FutureLog, "clear_up", lambda *_: None)  # the disk refused
            node.move(PATHS[1])
        node.trim(node.start + 4)
        with monkeypatch.context() as patch:
            patch.setattr("test_moved_partitions.retire", lambda *_: None)
            node.move(PATHS[2])
        node.directories.close({KEY: node.log.log_end_offset})
        with monkeypatch.context() as patch:
            patch.setattr("test_moved_partitions.PATHS", PATHS[:2])
            with ending(node, at):
                node.open()
            if loses_power:
                node.files.disk.lose_power(random.Random(at))
            else:
                node.directories.abandon()
            node.files.at = -1
            node.open()
            assert (node.path, node.log.log_start_offset) == (PATHS[1], node.start)


def test_what_cannot_be_brought_back_as_it_was_is_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room to say where it begins, or none to open the directory."""
    bring_back, refused = LogDirectory.bring_back, list[KafkaError]()

    def bringing(directory: LogDirectory, key: PartitionKey, name: str, log_start_offset: int) -> None:
        try:
            bring_back(directory, key, name, log_start_offset)
        except KafkaError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(LogDirectory, "bring_back", bringing)
    for at in range(12):
        node = left_behind(monkeypatch)
        node.directories.close({KEY: node.log.log_end_offset})
        with monkeypatch.context() as patch:
            patch.setattr("test_moved_partitions.PATHS", WITHOUT_HOME)
            node.files.full, node.files.full_from = PATHS[0], node.files.changes + at
            with contextlib.suppress(DirectoryOffline):
                node.open()
                check_is_back(node)
            node.directories.abandon()
            node.files.full = ""
            node.open()
            check_is_back(node)
    assert refused, "it was begun"


def test_a_full_disk_lets_its_partitions_go() -> None:
    node = prepared()
    node.files.full = PATHS[0]
    node.append = lambda: None  # type: ignore[method-assign]  # there is no room
    node.trim = lambda offset: None  # type: ignore[method-assign]
    node.move(PATHS[1])
    assert node.path == PATHS[1]
    del node.append, node.trim
    node.files.full = ""
    node.directories.abandon()
    node.reopened()
