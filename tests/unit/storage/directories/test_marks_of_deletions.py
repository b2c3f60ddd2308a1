"""What says of a partition that it was deleted, and is not missing: made in time, for no longer than it is true."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from two_disks import CONFIG, FIRST, PATHS, SECOND, Node, NothingReachesTheDisk, fill

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import NAME_BYTES_MAX
from barnabas.log.checkpoints.checkpoint_file import (
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_offsets,
)
from barnabas.log.checkpoints.stray import StrayKey, stray_name
from barnabas.log.deleted_directories import deleted_name, gone_name
from barnabas.log.moving.future_directory import MoveFacts
from barnabas.log.moving.future_log import retire
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.errors import LogLost

KEY = ("t", 0)
ASIDE = StrayKey(FIRST, 0)


@pytest.fixture
def node() -> Node:
    return Node()


def begin_filled(node: Node, topic_id: uuid.UUID = FIRST, count: int = 3) -> tuple[str, PartitionLog]:
    path, log = node.begin(topic_id, PATHS[0])
    fill(log, count)
    node.directories.write_checkpoints(path, {KEY: count})
    return path, log


def set_aside(node: Node) -> None:
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 3)
    assert node.directories.strays.keys == [ASIDE]


def lose(node: Node, path: str) -> None:
    node.files.rename(f"{path}/t-0", f"{path}-away")
    node.crash()


def check_lost(node: Node, topic_id: uuid.UUID, path: str) -> None:
    with pytest.raises(LogLost):
        node.begin(topic_id, path, is_new=False, may_begin_anew=False)


# -- one disk and another -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remove", [Node.go, set_aside], ids=["deleted", "set aside"])
def test_a_disk_that_hangs_holds_up_no_deletion_on_another(
    node: Node, monkeypatch: pytest.MonkeyPatch, remove: Callable[[Node], None]
) -> None:
    """It knows nothing of the partition."""
    _, log = node.begin(FIRST, PATHS[1])
    fill(log, 3)
    hanging, goes_on = threading.Event(), threading.Event()
    real = node.files.fsync

    def fsync(fd: int) -> None:
        if node.files._open[fd].path.startswith(PATHS[0]):
            hanging.set()
            goes_on.wait(60)
        real(fd)

    monkeypatch.setattr(node.files, "fsync", fsync)
    stuck = threading.Thread(target=node.directories.write_checkpoints, args=(PATHS[0],))
    removal = threading.Thread(target=remove, args=(node,))
    stuck.start()
    assert hanging.wait(60)
    removal.start()
    removal.join(10)
    is_held_up = removal.is_alive()
    goes_on.set()
    stuck.join()
    removal.join()
    assert not is_held_up
    assert "t-0" not in node.names(PATHS[1])


def test_what_has_moved_is_not_missed_once_it_was_set_aside_and_deleted(node: Node) -> None:
    """The checkpoints of where it had been speak of it all the time."""
    path, log = begin_filled(node)
    node.move(log)
    with node.full("/a"):
        retire(node.directories.at(path), log)
        set_aside(node)
        assert node.directories.strays.path_of(ASIDE) == PATHS[1]
        node.directories.strays.delete(ASIDE)
    node.crash()
    assert node.begin(SECOND, path, is_new=False, may_begin_anew=False)[1].log_end_offset == 0


@pytest.mark.parametrize("remove", [Node.go, set_aside], ids=["deleted", "set aside"])
def test_the_other_disk_says_it_before_the_partition_goes(
    node: Node, monkeypatch: pytest.MonkeyPatch, remove: Callable[[Node], None]
) -> None:
    """Durably: the power goes when only the one that had the partition has written what it was told."""
    path, log = begin_filled(node)
    node.move(log)
    node.directories.write_checkpoints(PATHS[1], {KEY: 3})
    order = []
    real_rename, real_fsync = node.files.rename, node.files.fsync

    def rename(old: str, new: str) -> None:
        if old == f"{PATHS[1]}/t-0":
            order.append("goes")
        real_rename(old, new)

    def fsync(fd: int) -> None:
        if node.files._open[fd].path == path and any(each.endswith("-delete") for each in node.names(path)):
            order.append("said")
        real_fsync(fd)

    with node.full("/a"), monkeypatch.context() as patch:
        retire(node.directories.at(path), log)
        patch.setattr(node.files, "rename", rename)
        patch.setattr(node.files, "fsync", fsync)
        remove(node)
    assert order[:2] == ["said", "goes"]


# -- marks that stay ------------------------------------------------------------------------------------------------


def test_a_disk_that_does_not_say_what_is_there_costs_the_present_topic_nothing(node: Node) -> None:
    """A stray of its name is deleted meanwhile."""
    begin_filled(node)
    set_aside(node)
    path, log = node.begin(SECOND, PATHS[0])
    fill(log, 5)
    log.maybe_increment_log_start_offset(3)
    node.directories.write_checkpoints(path, {KEY: 5})
    node.directories.at(path).close_partition(*KEY)
    with node.failing("stat", beginning=f"{path}/t-0"):
        node.directories.strays.delete(ASIDE)
    node.crash()
    assert node.directories.at(path).high_watermarks[KEY] == 5
    assert node.begin(SECOND, is_new=False)[1].log_start_offset == 3


def test_a_disk_that_does_not_say_what_is_there_is_not_taken_for_empty(node: Node) -> None:
    """What is to be set aside keeps its place, or it would be in two."""
    path, _ = begin_filled(node)
    node.directories.release(*KEY)
    node.directories.at(path).close_partition(*KEY)
    with node.failing("stat", beginning=f"{path}/t-0"):
        node.directories.set_aside("t", 0, FIRST, 3)
    assert node.directories.strays.keys == []
    assert node.begin(FIRST, PATHS[1])[0] == path


@pytest.mark.parametrize("is_killed", [False, True], ids=["in this process", "in the next"])
def test_what_is_taken_back_after_a_deletion_that_failed_does_not_vanish_unseen(
    node: Node, is_killed: bool
) -> None:
    path, _ = begin_filled(node)
    with node.full(f"{path}/recovery"):
        set_aside(node)
        with node.failing("rename", ending="-stray"):
            node.directories.strays.delete(ASIDE)
    if is_killed:
        node.crash()
    _, log = node.begin(FIRST, path, is_new=False, may_begin_anew=False)
    assert log.log_end_offset == 3
    node.directories.write_checkpoints(path, {KEY: 3})
    assert node.names(path) == ["t-0"]
    lose(node, path)
    check_lost(node, FIRST, path)


def test_what_is_taken_back_behind_a_deleted_topic_does_not_vanish_unseen(node: Node) -> None:
    begin_filled(node)
    set_aside(node)
    path, _ = begin_filled(node, SECOND)
    with node.full(path):
        node.go(SECOND)
    node.begin(FIRST, path, is_new=False, may_begin_anew=False)
    node.directories.write_checkpoints(path, {KEY: 3})
    assert node.names(path) == ["t-0"]
    lose(node, path)
    check_lost(node, FIRST, path)


def test_a_take_back_that_failed_leaves_nothing_to_the_next_topic(node: Node) -> None:
    path, log = begin_filled(node)
    log.maybe_increment_log_start_offset(2)
    set_aside(node)
    with node.failing("rename", ending="-stray"), pytest.raises(KafkaError):
        node.begin(FIRST, path)
    node.directories.release(*KEY)
    assert node.begin(SECOND, path, may_begin_anew=False)[1].log_start_offset == 0
    node.directories.write_checkpoints(path, {KEY: 0})
    assert sorted(node.names(path)) == ["t-0", stray_name("t", ASIDE)]


def test_a_take_back_that_failed_leaves_nothing_when_the_stray_is_deleted(node: Node) -> None:
    path, _ = begin_filled(node)
    set_aside(node)
    with node.failing("rename", ending="-stray"), pytest.raises(KafkaError):
        node.begin(FIRST, path)
    node.directories.strays.delete(ASIDE)
    assert node.names(path) == []
    node.crash()
    assert KEY not in node.directories.at(path).recovery_points


def test_what_moves_here_while_a_stray_of_its_name_is_deleted_keeps_what_it_has(node: Node) -> None:
    """The deletion waits for the checkpoints, which somebody writes, and then another topic's partition is here."""
    path, _ = begin_filled(node)
    set_aside(node)
    with node.failing("rename", ending="-stray"), pytest.raises(KafkaError):
        node.begin(FIRST, path)
    home = node.directories.at(path)
    lock = home._checkpoint_lock

    class Waiting:
        def __enter__(self) -> None:
            home._checkpoint_lock = lock
            home.forget_place(KEY)
            home.adopt(KEY, MoveFacts(5, 0, 5, -1))
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    home._checkpoint_lock = Waiting()  # type: ignore[assignment]
    node.directories.strays.delete(ASIDE)
    assert (home.recovery_points[KEY], home.high_watermarks[KEY]) == (5, 5)
    assert node.names(path) == []


def test_what_could_not_be_set_aside_does_not_vanish_unseen(node: Node) -> None:
    path, _ = begin_filled(node)
    node.directories.release(*KEY)
    with node.failing("rename", ending="/t-0"):
        node.directories.set_aside("t", 0, FIRST, 3)
    assert node.names(path) == ["t-0"]
    lose(node, path)
    check_lost(node, FIRST, path)


def test_what_is_taken_back_is_checked_and_cleaned_from_where_it_was(node: Node) -> None:
    """Nobody knows how it was closed, whatever the directory's mark says."""
    path, _ = begin_filled(node)
    home = node.directories.at(path)
    home.close_partition(*KEY)
    home.cleaner_offsets[KEY] = 2
    set_aside(node)
    node.directories.close({})
    node.open()
    home = node.directories.at(path)
    assert home.was_clean
    node.directories.strays.take_back(home, "t", ASIDE)
    assert not home._is_closed_properly(KEY)
    node.crash()
    assert node.directories.at(path).cleaner_offsets == {KEY: 2}


def test_a_mark_is_made_durable_again_where_that_failed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = node.directories.at(PATHS[0]).deleted

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, "fsync", fail)
        with pytest.raises(OSError, match="sync failed"):
            marks.note(KEY, node.environment.new_id())
    marks.note(KEY, node.environment.new_id())
    (mark,) = node.names(PATHS[0])
    node.directories.abandon()
    node.files.lose_power(NothingReachesTheDisk())
    assert node.names(PATHS[0]) == [mark]


def test_marks_do_not_pile_up_on_a_full_disk(node: Node) -> None:
    """However often the deletion is tried."""
    path, log = begin_filled(node)
    node.move(log)
    with node.full(path), node.failing("rename", beginning="/b"):
        retire(node.directories.at(path), log)
        node.go()
        for _ in range(3):
            with pytest.raises(KafkaError):
                node.begin(SECOND)
            node.directories.release(*KEY)
        assert len(node.names(path)) == 1


def test_a_loss_shows_although_a_stray_of_another_topic_has_the_name(node: Node) -> None:
    begin_filled(node)
    set_aside(node)
    path, _ = begin_filled(node, SECOND)
    lose(node, path)
    check_lost(node, SECOND, path)
    node.directories.strays.delete(ASIDE)
    node.directories.write_checkpoints(path)
    node.crash()
    check_lost(node, SECOND, path)


# -- marks that the disk does not let go of -------------------------------------------------------------------------


def leave_mark(node: Node, monkeypatch: pytest.MonkeyPatch) -> str:
    """The partition is deleted, the checkpoints are written, and the mark is still there."""
    path, _ = begin_filled(node)
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        node.go()
    assert [name[:4] for name in node.names(path)] == ["t-0."]
    return path


def test_a_mark_that_could_not_be_removed_goes_with_the_next_checkpoints(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leave_mark(node, monkeypatch)
    node.directories.write_checkpoints(path)
    assert node.names(path) == []


def test_a_mark_that_a_start_could_not_remove_goes_with_the_next_checkpoints(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leave_mark(node, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        node.crash()
    node.directories.write_checkpoints(path)
    assert node.names(path) == []


def test_a_mark_that_cannot_be_removed_hides_no_loss(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses the name that speaks of the partition."""
    path = leave_mark(node, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        begin_filled(node, SECOND)
        lose(node, path)
    check_lost(node, SECOND, path)


def test_what_may_come_back_under_its_name_hides_no_loss(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept whole, for its new name was not known to be on the disk."""
    path, _ = begin_filled(node)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.deleted_directories.sync_directory", fail)
        node.go()
    node.directories.write_checkpoints(path)
    (left,) = node.names(path)
    assert node.files.listdir(f"{path}/{left}")
    begin_filled(node, SECOND)
    lose(node, path)
    check_lost(node, SECOND, path)


def test_nothing_begins_beside_a_mark_that_keeps_its_name(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leave_mark(node, monkeypatch)
    with monkeypatch.context() as patch, node.failing("rename", beginning=f"{path}/t-0."):
        patch.setattr(node.files, "remove_tree", lambda _: None)
        with pytest.raises(KafkaError) as refused:
            node.begin(SECOND, path)
        assert refused.value.code == ErrorCode.kafka_storage_error
        assert isinstance(refused.value.__cause__, OSError), "it is tried again"
    node.begin(SECOND, path)
    assert node.names(path) == ["t-0"]


def test_a_stray_can_be_deleted_twice(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left of it the first time has another name."""
    path, _ = begin_filled(node)
    for _ in range(2):
        set_aside(node)
        with monkeypatch.context() as patch:
            patch.setattr(node.files, "remove_tree", lambda _: None)
            node.directories.strays.delete(ASIDE)
        assert node.directories.strays.keys == []
        node.begin(FIRST, path)
    node.crash()
    assert node.names(path) == ["t-0"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["in this process", "in the next"])
def test_two_topics_that_are_set_aside_at_a_start_are_missed_nowhere(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """In a third directory, which one of them had moved out of, the checkpoints speak of it yet."""
    third = "/c/log"
    monkeypatch.setattr("two_disks.PATHS", (*PATHS, third))
    begin_filled(node)
    node.directories.close({KEY: 3})
    node.files.rename(f"{PATHS[0]}/t-0", "/a/away")
    node.open()
    node.directories.release(*KEY)
    node.begin(SECOND, PATHS[1])
    node.directories.close({KEY: 0})
    node.files.rename("/a/away", f"{PATHS[0]}/t-0")
    write_offsets(node.files, f"{third}/{RECOVERY_POINT_FILE}", {KEY: 3})
    node.open()
    assert {each.topic_id for each in node.directories.strays.keys} == {FIRST, SECOND}
    if is_killed:
        node.crash()
    assert node.begin(uuid.UUID(int=3), third, is_new=False, may_begin_anew=False)[0] == third


def test_a_start_makes_room_before_the_checkpoints_are_written(node: Node) -> None:
    """The process ended before anything of what was deleted had gone but its name."""
    path, _ = begin_filled(node)
    node.directories.at(path).deleted.add(KEY, node.environment.new_id())
    (mark,) = node.names(path)
    assert node.files.listdir(f"{path}/{mark}")
    node.crash()
    assert (node.names(path), node.files.listdir(f"{path}/{mark}")) == ([mark], [])


def test_where_the_log_began_elsewhere_is_forgotten_too(node: Node) -> None:
    """No other checkpoint there names the partition."""
    node.begin(FIRST, PATHS[0])
    other = node.directories.at(PATHS[1])
    other.log_start_offsets[KEY] = 2
    other.write_checkpoints()
    node.go()
    assert read_offsets(node.files, f"{PATHS[1]}/{LOG_START_OFFSET_FILE}") == {}


def test_what_was_gone_already_when_it_was_deleted_is_not_missed(node: Node) -> None:
    """And the disk is full."""
    begin_filled(node)
    node.directories.at(PATHS[0]).logs.pop(KEY).release()
    node.files.rename(f"{PATHS[0]}/t-0", "/a/away")
    with node.full(PATHS[0]):
        node.go()
    node.crash()
    assert node.begin(SECOND, PATHS[0], is_new=False, may_begin_anew=False)[1].log_end_offset == 0


# -- names ----------------------------------------------------------------------------------------------------------


def test_names_are_as_long_as_a_disk_takes(node: Node) -> None:
    """Only then is the topic's part cut, by as much as it has to be; what is cut speaks of no partition."""
    unique, rest = node.environment.new_id(), len("-0.") + 32 + len("-delete")
    longest = "t" * (NAME_BYTES_MAX - rest)
    assert deleted_name(longest, 0, unique) == f"{longest}-0.{unique.hex}-delete"
    assert deleted_name(f"{longest}t", 0, unique) == gone_name(f"{longest}t", 0, unique)
    for topic in (longest, f"{longest}t", "t" * 249):
        gone, aside = gone_name(topic, 0, unique), stray_name(topic, ASIDE)
        assert gone.endswith(f"t-0.{unique.hex}-gone-delete")
        assert aside.endswith(f"t-0.{FIRST.hex}-stray")
        assert len(gone) == NAME_BYTES_MAX
        assert len(aside) == min(NAME_BYTES_MAX, len(topic) + len("-0.") + 32 + len("-stray"))
    assert gone_name("t", 0, unique) == f"t-0.{unique.hex}-gone-delete"


def test_a_name_that_is_cut_hides_no_loss_of_another_topic(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one whose name is what is left of it."""
    shorter, doomed = "t" * 213, "t" * 214
    for topic, topic_id in ((shorter, FIRST), (doomed, SECOND)):
        path = node.directories.claim(topic, 0, topic_id, is_new=True, preferred=PATHS[0])
        log, _ = node.directories.open_partition(path, topic, 0, topic_id, CONFIG)
        fill(log, 3)
    node.directories.write_checkpoints(path, {(shorter, 0): 3, (doomed, 0): 3})
    with monkeypatch.context() as patch:
        patch.setattr(node.files, "remove_tree", lambda _: None)
        node.directories.release(doomed, 0)
        node.directories.delete_partition(doomed, 0, SECOND)
    node.files.rename(f"{path}/{shorter}-0", f"{path}-away")
    node.crash()
    node.directories.claim(shorter, 0, FIRST, is_new=False, preferred=path)
    with pytest.raises(LogLost):
        node.directories.open_partition(path, shorter, 0, FIRST, CONFIG, may_begin_anew=False)
