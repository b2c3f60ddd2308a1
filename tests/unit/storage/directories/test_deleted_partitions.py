"""A partition that goes leaves its name free, whatever the disk does; and two topics of one name harm nobody."""

from __future__ import annotations

import errno
import os
import uuid
from typing import Any

import pytest
from two_disks import CONFIG, FIRST, PATHS, SECOND, Node, fill

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.errors import LogStoreError
from barnabas.log.moving.future_log import retire
from barnabas.log.small_files import read_whole, write_at
from barnabas.storage.directories.errors import LogLost


@pytest.fixture
def node() -> Node:
    return Node()


def test_what_was_deleted_does_not_come_back_when_the_power_is_lost(node: Node) -> None:
    """No checkpoint names it yet, with which the name's going would be made durable."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.go()
    node.lose_power()
    assert "t-0" not in node.names(path)
    node.begin(SECOND, PATHS[1])


@pytest.mark.parametrize("call", ["rename", "fsync"])
@pytest.mark.parametrize("topic_id", [FIRST, SECOND], ids=["the same", "another"])
def test_what_could_not_be_deleted_keeps_its_place_until_it_can_be(
    node: Node, monkeypatch: pytest.MonkeyPatch, call: str, topic_id: uuid.UUID
) -> None:
    """It comes again, and begins anew where it was: not in a second place."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    log.maybe_increment_log_start_offset(2)
    node.directories.write_checkpoints(path, {("t", 0): 3})

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, call, fail)
        node.go()
        if call == "rename":
            with pytest.raises(KafkaError) as refused:
                node.begin(topic_id, PATHS[1])
            assert refused.value.code == ErrorCode.kafka_storage_error
            assert isinstance(refused.value.__cause__, OSError), "it is tried again"
            node.directories.release("t", 0)
    again, log = node.begin(topic_id, PATHS[1])
    assert (again, log.log_start_offset, log.log_end_offset) == (path, 0, 0)
    fill(log, 1)
    node.directories.close({("t", 0): 1})
    node.open()
    assert node.begin(topic_id, is_new=False)[1].log_end_offset == 1


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
@pytest.mark.parametrize("crashes", [1, 2])
def test_what_was_deleted_is_not_missed_where_its_checkpoints_were_not_written(
    node: Node, monkeypatch: pytest.MonkeyPatch, call: str, crashes: int
) -> None:
    """They speak of a topic that is gone: the next one of its name has lost nothing, whoever else has a replica."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, call, fail)
        node.go()
        with pytest.raises(KafkaError):
            node.begin(SECOND)
    for _ in range(crashes):
        node.crash()
    again, log = node.begin(SECOND, path, is_new=False, may_begin_anew=False)
    assert (again, log.log_end_offset) == (path, 0)
    assert node.names(path) == ["t-0"]
    fill(log, 1)
    node.directories.write_checkpoints(path, {("t", 0): 1})
    node.files.rename(f"{path}/t-0", "/a/away")
    node.crash()
    with pytest.raises(LogLost):
        node.begin(SECOND, path, is_new=False, may_begin_anew=False)


def test_a_high_watermark_that_was_collected_before_does_not_bring_a_partition_back(node: Node) -> None:
    """Upkeep was about to write it while somebody deleted the partition."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    directory = node.directories.at(path)
    node.go()
    directory.write_checkpoints({("t", 0): 3})
    node.crash()
    assert node.begin(SECOND, path, is_new=False, may_begin_anew=False)[1].log_end_offset == 0


def test_what_may_come_back_under_its_name_keeps_what_is_in_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new name is not known to be on the disk."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.deleted_directories.sync_directory", fail)
        with pytest.raises(KafkaError):
            node.directories.at(path).delete_partition("t", 0)
    (left,) = node.names(path)
    assert left.startswith("t-0.")
    assert node.files.listdir(f"{path}/{left}")
    node.crash()
    assert node.names(path) == []


def test_what_was_deleted_on_a_full_disk_takes_no_room(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory says that it was, until the checkpoints do."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, "pwrite", fail)
        node.go()
        (left,) = node.names(path)
        assert left.startswith("t-0.")
        assert node.files.listdir(f"{path}/{left}") == []
    node.directories.write_checkpoints(path)
    assert node.names(path) == []


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "killed"])
def test_what_has_moved_and_was_deleted_then_is_not_missed(node: Node, is_full: bool) -> None:
    """The checkpoints of where it had been speak of it yet."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    node.move(log)
    if is_full:
        with node.full(path):
            retire(node.directories.at(path), log)
            node.go()
    else:
        node.crash()
        assert node.begin(FIRST, is_new=False)[0] == PATHS[1]
        node.go()
    node.crash()
    assert node.begin(SECOND, path, is_new=False, may_begin_anew=False)[1].log_end_offset == 0
    assert [node.names(path), node.names(PATHS[1])] == [["t-0"], []]


def test_what_is_left_of_a_deletion_says_nothing_of_the_next_topic(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node died when the checkpoints were written, and before the mark went."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        node.go()
    _, log = node.begin(SECOND, path)
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    node.crash()
    node.files.rename(f"{path}/t-0", "/a/away")
    node.crash()
    with pytest.raises(LogLost):
        node.begin(SECOND, path, is_new=False, may_begin_anew=False)


def test_what_was_set_aside_and_deleted_then_is_not_missed(node: Node) -> None:
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    with node.full(f"{path}/recovery"):
        node.directories.release("t", 0)
        node.directories.set_aside("t", 0, FIRST, 3)
        node.directories.strays.delete(StrayKey(FIRST, 0))
    node.crash()
    assert node.begin(SECOND, path, is_new=False, may_begin_anew=False)[1].log_end_offset == 0
    assert node.names(path) == ["t-0"]


def test_what_a_stray_leaves_hides_no_loss(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A former topic's partition was being deleted when the node died, and the present one's is gone."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.release("t", 0)
    node.directories.set_aside("t", 0, FIRST, 3)
    _, log = node.begin(SECOND, path)
    fill(log, 3)
    node.directories.write_checkpoints(path, {("t", 0): 3})
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        node.directories.strays.delete(StrayKey(FIRST, 0))
    node.files.rename(f"{path}/t-0", "/a/away")
    node.crash()
    with pytest.raises(LogLost):
        node.begin(SECOND, path, is_new=False, may_begin_anew=False)


@pytest.mark.parametrize("length", [213, 214, 249])
@pytest.mark.parametrize("is_aside", [False, True], ids=["deleted", "set aside"])
def test_a_topic_of_the_longest_name_can_be_deleted(node: Node, length: int, is_aside: bool) -> None:
    """The directory's name while it goes is longer than its own; Kafka cuts the topic's part off."""
    topic, key = "t" * length, StrayKey(FIRST, 0)
    path = node.directories.claim(topic, 0, FIRST, is_new=True)
    log, _ = node.directories.open_partition(path, topic, 0, FIRST, CONFIG)
    fill(log, 3)
    node.directories.write_checkpoints(path, {(topic, 0): 3})
    node.directories.release(topic, 0)
    if is_aside:
        node.directories.set_aside(topic, 0, FIRST, 3)
        node.crash()
        assert node.directories.strays.keys == [key]
        node.directories.strays.delete(key)
    else:
        node.directories.delete_partition(topic, 0, FIRST)
    assert (node.names(path), node.directories.strays.keys) == ([], [])
    node.crash()
    assert node.directories.claim(topic, 0, SECOND, is_new=False) == path
    node.directories.open_partition(path, topic, 0, SECOND, CONFIG, may_begin_anew=False)


@pytest.mark.parametrize("is_order", [True, False], ids=["deleted", "set aside"])
def test_what_could_not_be_set_aside_does_not_go_with_the_next_topic_of_its_name(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_order: bool
) -> None:
    """Nobody has said that it is deleted, and it is not the other one's."""
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, "rename", fail)
        node.directories.set_aside("t", 0, FIRST, 3)
    node.directories.claim("t", 0, SECOND, is_new=True)
    if is_order:
        node.go(SECOND)
    else:
        node.directories.set_aside("t", 0, SECOND, 0)
    assert (node.names(path), node.directories.strays.keys) == (["t-0"], [])
    node.directories.set_aside("t", 0, FIRST, 3)
    assert node.directories.strays.keys == [StrayKey(FIRST, 0)]


@pytest.mark.parametrize("known", [FIRST, SECOND], ids=["first", "second"])
def test_two_topics_of_one_name_are_set_aside_until_it_is_known_which_was_deleted(
    node: Node, known: uuid.UUID
) -> None:
    for path, topic_id, count in ((PATHS[0], FIRST, 3), (PATHS[1], SECOND, 5)):
        home, log = node.begin(topic_id, path)
        assert home == path
        fill(log, count)
        log.maybe_increment_log_start_offset(1)
        node.directories.close({("t", 0): count})
        if path == PATHS[0]:
            node.files.rename(f"{PATHS[0]}/t-0", "/a/away")
            node.open()
    node.files.rename("/a/away", f"{PATHS[0]}/t-0")
    node.open()
    assert node.directories.found == []
    assert {each.topic_id for each in node.directories.strays.keys} == {FIRST, SECOND}
    home, log = node.begin(known, is_new=False)
    assert home == PATHS[0 if known == FIRST else 1]
    assert log.log_end_offset == (3 if known == FIRST else 5)
    assert [each.topic_id for each in node.directories.strays.keys] == [SECOND if known == FIRST else FIRST]
    node.directories.close({("t", 0): log.log_end_offset})
    node.open()
    assert [each.topic_id for each in node.directories.found] == [known]


def test_one_topic_in_two_places_is_refused(node: Node) -> None:
    _, log = node.begin(FIRST, PATHS[0])
    fill(log, 1)
    node.directories.close({})
    node.files.makedirs(f"{PATHS[1]}/t-0")
    for name in node.files.listdir(f"{PATHS[0]}/t-0"):
        if name != "partition.metadata":
            write_at(
                node.files, f"{PATHS[1]}/t-0/{name}", 0, read_whole(node.files, f"{PATHS[0]}/t-0/{name}")
            )
    before = [node.names(path) for path in PATHS]
    with pytest.raises(LogStoreError, match="both hold t-0"):
        node.open()
    assert [node.names(path) for path in PATHS] == before
