"""What was moved, and set aside where it had come to, is what is taken back: not the older copy that it left."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, expire_all, fill, refuse, sync_names

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints.partition_metadata import ensure_topic_id
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.moving.future_directory import remove_future
from barnabas.log.moving.future_log import FutureLog
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.errors import DirectoryOffline

KEY = ("t", 0)
ASIDE = StrayKey(FIRST, 0)


def stop(node: Node) -> None:
    node.directories.close({})
    node.open()


@pytest.fixture
def node() -> Node:
    """Its partition has moved, got more records, and was set aside; what it left has not gone yet."""
    node = Node()
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {KEY: 3})
    node.move(log)
    fill(node.directories.at(PATHS[1]).logs[KEY], 5)
    node.directories.write_checkpoints(PATHS[1], {KEY: 8})
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 8)
    assert node.directories.strays.path_of(ASIDE) == PATHS[1]
    assert [name.endswith("-moving") for name in node.names(PATHS[0])] == [True]
    return node


def check_taken_back(node: Node) -> None:
    assert (node.directories.found, node.directories.strays.keys) == ([], [ASIDE])
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[1], 8)


@pytest.mark.parametrize("end", [Node.crash, stop, Node.lose_power], ids=["killed", "stopped", "power lost"])
def test_what_it_left_goes_when_the_node_starts(node: Node, end: Callable[[Node], None]) -> None:
    end(node)
    assert node.names(PATHS[0]) == []
    check_taken_back(node)


def test_what_it_left_waits_for_a_log_directory_that_is_offline(node: Node) -> None:
    """It may be in that one, set aside: nobody knows. The start that finds it there removes what was left."""
    with node.failing("list_directories", beginning=PATHS[1]):
        node.crash()
    assert (node.directories.offline, node.directories.found) == ({PATHS[1]}, [])
    with pytest.raises(DirectoryOffline):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.crash()
    assert node.names(PATHS[0]) == []
    check_taken_back(node)


def test_what_it_left_goes_once_the_disk_lets_it(node: Node) -> None:
    with node.failing("rename", ending="-moving"):
        node.crash()
    assert len(node.names(PATHS[0])) == 1
    check_taken_back(node)
    node.directories.write_checkpoints(PATHS[1], {KEY: 8})
    node.crash()
    assert (node.names(PATHS[0]), node.names(PATHS[1])) == ([], ["t-0"])


def test_what_was_left_is_back_where_the_log_directory_with_the_rest_is_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody took it away: what there was before is all that there is."""
    monkeypatch.setattr("two_disks.PATHS", PATHS[:1])
    node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 3)


# -- beside one that was set aside earlier ---------------------------------------------------------------------------


def older_stray(node: Node, old: str, new: str) -> PartitionLog:
    """A stray one with 2 records in `old`; in `new` the partition, which was begun anew while that was offline."""
    _, log = node.begin(FIRST, old)
    fill(log, 2)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 2)
    with node.failing("list_directories", beginning=old):
        node.crash()
    path, log = node.begin(FIRST, new)
    fill(log, 5)
    node.directories.write_checkpoints(path, {KEY: 5})
    node.crash()
    assert node.directories.strays.path_of(ASIDE) == old
    return node.begin(FIRST, is_new=False, may_begin_anew=False)[1]


def check_whole(node: Node, path: str = PATHS[0]) -> None:
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (path, 5)


def ended(*_: object) -> None:
    """The process ends where this was to be done."""
    raise SystemExit


def end_between_names(node: Node, log: PartitionLog) -> None:
    """The process ends when what moves has lost its name in one directory, and not got it in the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FutureLog, "_take_place", ended)
        with pytest.raises(SystemExit):
            node.move(log)
    assert [name.endswith("-moving") for name in node.names(PATHS[0])] == [True]


def test_it_does_not_stand_for_what_was_about_to_move_to_it() -> None:
    node = Node()
    end_between_names(node, older_stray(node, PATHS[1], PATHS[0]))
    node.crash()
    check_whole(node)


def test_nor_where_the_move_failed_and_the_power_takes_the_name_that_came_back() -> None:
    node = Node()
    log = older_stray(node, PATHS[1], PATHS[0])
    with node.failing("rename", ending="-future"), pytest.raises(KafkaError):
        node.move(log)
    for name in node.names(PATHS[1]):
        if name.endswith("-future"):
            remove_future(node.files, PATHS[1], name)
    sync_names(node, PATHS[1])
    node.lose_power()
    check_whole(node)


def test_nor_is_it_taken_back_while_a_third_directory_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start that finds it there would take what was left for what has moved."""
    monkeypatch.setattr("two_disks.PATHS", (*PATHS, "/a/third"))
    node = Node()
    end_between_names(node, older_stray(node, PATHS[1], PATHS[0]))
    with node.failing("list_directories", beginning="/a/third"):
        node.crash()
    with pytest.raises(DirectoryOffline):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.crash()
    check_whole(node)


@pytest.mark.parametrize("old", PATHS)
def test_of_two_stray_ones_the_one_with_more_is_taken_back(old: str) -> None:
    (new,) = set(PATHS) - {old}
    node = Node()
    older_stray(node, old, new)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    node.crash()
    check_whole(node, new)


@pytest.mark.parametrize("old", PATHS)
def test_nor_does_it_count_less_once_retention_has_taken_all_of_it(old: str) -> None:
    """What the older one has was deleted."""
    (new,) = set(PATHS) - {old}
    node = Node()
    end = expire_all(older_stray(node, old, new))
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, end)
    node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (new, end, end)


def test_nor_does_it_stand_for_what_was_about_to_move_and_that_retention_had_taken() -> None:
    node = Node()
    log = older_stray(node, PATHS[1], PATHS[0])
    end = expire_all(log)
    end_between_names(node, log)
    node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], end)


def test_what_was_left_does_not_stand_for_what_retention_has_taken_where_it_moved_to() -> None:
    node = Node()
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {KEY: 3})
    node.move(log)
    end = expire_all(node.directories.at(PATHS[1]).logs[KEY])
    node.directories.write_checkpoints(PATHS[1], {KEY: end})
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, end)
    node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[1], end, end)


@pytest.mark.parametrize("old", PATHS)
def test_where_one_cannot_be_read_the_other_does_not_stand_for_it(old: str) -> None:
    """The start could not compare them: the log directory is offline."""
    (new,) = set(PATHS) - {old}
    node = Node()
    older_stray(node, old, new)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    with node.failing("open", beginning=new, ending=".log"):
        node.crash()
    with pytest.raises(DirectoryOffline):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.crash()
    check_whole(node, new)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("is_aside", [False, True])
@pytest.mark.parametrize("old", PATHS)
def test_nor_while_the_log_directory_of_the_other_is_offline(old: str, is_aside: bool, is_new: bool) -> None:
    """Also where its topic comes again to the metadata: it had its id before."""
    (new,) = set(PATHS) - {old}
    node = Node()
    older_stray(node, old, new)
    if is_aside:
        node.directories.release(*KEY)
        node.directories.set_aside("t", 0, FIRST, 5)
    with node.failing("list_directories", beginning=new):
        node.crash()
    with pytest.raises(DirectoryOffline):
        node.begin(FIRST, is_new=is_new, may_begin_anew=False)
    node.crash()
    check_whole(node, new)


def older_beside_it() -> Node:
    """The partition has moved to where the older stray one is."""
    node = Node()
    log = older_stray(node, PATHS[1], PATHS[0])
    node.move(log)
    log.release()
    node.directories.at(PATHS[0]).let_go(KEY)
    return node


def test_beside_one_in_the_same_directory_it_stays_in_its_place() -> None:
    node = older_beside_it()
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    assert [name.endswith("-stray") for name in node.names(PATHS[1])] == [True, False]
    assert "stray.properties" not in node.files.listdir(f"{PATHS[1]}/t-0")
    node.crash()
    check_whole(node, PATHS[1])


def test_a_log_without_records_does_not_stand_for_the_stray_one() -> None:
    node = Node()
    home, log = node.begin(FIRST, PATHS[0])
    fill(log, 5)
    node.directories.write_checkpoints(home, {KEY: 5})
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    node.files.makedirs(f"{home}/t-0")
    ensure_topic_id(node.files, f"{home}/t-0", FIRST)
    node.crash()
    node.directories.claim("t", 0, FIRST, is_new=False)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 0)
    node.crash()
    check_whole(node)


def test_the_older_one_may_be_deleted_while_the_newer_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread of another log directory: the process still knows where the newer one is."""
    node = Node()
    older_stray(node, *PATHS)
    remove_tree = node.files.remove_tree

    def remove_and_set_aside(path: str) -> None:
        if not set_aside:
            set_aside.append(ASIDE)
            node.directories.release(*KEY)
            node.directories.set_aside("t", 0, FIRST, 5)
        remove_tree(path)

    set_aside: list[StrayKey] = []
    monkeypatch.setattr(node.files, "remove_tree", remove_and_set_aside)
    node.directories.strays.delete(ASIDE)
    check_whole(node, PATHS[1])


def test_an_expired_one_is_not_deleted_once_a_newer_one_has_its_key() -> None:
    """It was found to be too old while the newer one waited for being set aside."""
    node = Node()
    older_stray(node, *PATHS)
    node.environment.clock.advance(limits.STRAY_KEPT_MS)
    assert node.directories.strays.expired(limits.STRAY_KEPT_MS) == [ASIDE]
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    node.directories.strays.delete(ASIDE, grace_ms=limits.STRAY_KEPT_MS)
    check_whole(node, PATHS[1])


# -- by a start, beside another topic of the name --------------------------------------------------------------------


def begin_beside(node: Node, path: str) -> None:
    """The node starts, and finds another topic of the name in the directory of the path."""
    node.directories.abandon()
    node.files.makedirs(f"{path}/t-0")
    ensure_topic_id(node.files, f"{path}/t-0", SECOND)
    node.open()
    assert node.directories.strays.path_of(ASIDE)


def test_what_has_just_moved_keeps_where_it_begins_and_its_high_watermark() -> None:
    """No checkpoint says them where it has come to."""
    node = Node()
    _, log = node.begin(FIRST, PATHS[0])
    fill(log, 5)
    log.maybe_increment_log_start_offset(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FutureLog, "clear_up", ended)
        with pytest.raises(SystemExit):
            node.move(log)
    begin_beside(node, PATHS[0])
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[1], 3, 5)
    assert node.directories.at(home).high_watermarks[KEY] == 5


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("method", ["open", "listdir"])
def test_what_is_set_aside_and_cannot_be_read_takes_its_own_directory_away(
    node: Node, monkeypatch: pytest.MonkeyPatch, method: str, code: int
) -> None:
    """It may have more than what a move left in the other one, which stays until that can be told."""

    def is_aside(path: str) -> bool:
        return (
            path.startswith(PATHS[1]) and "-stray" in path and (method == "listdir" or path.endswith(".log"))
        )

    with monkeypatch.context() as patch:
        refuse(patch, node, method, is_aside, code)
        node.crash()
        assert (node.directories.offline, node.directories.found) == ({PATHS[1]}, [])
        assert len(node.names(PATHS[0])) == 1
    node.crash()
    assert node.names(PATHS[0]) == []
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[1], 8)
