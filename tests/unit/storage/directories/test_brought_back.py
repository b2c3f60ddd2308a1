"""What comes to the place of a partition whose directory was gone: all of it has to be there, and it is looked for in
the log directory where it was.
"""

from __future__ import annotations

import os

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.checkpoints.checkpoint_file import RECOVERY_POINT_FILE, write_offsets
from barnabas.log.checkpoints.partition_metadata import ensure_topic_id
from barnabas.log.errors import LogStoreError
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.errors import LogLost

KEY = ("t", 0)


def made(path: str = PATHS[0]) -> Node:
    """A node that ended, whose checkpoints name five records in the log directory of the path."""
    node = Node()
    _, log = node.begin(FIRST, path)
    fill(log, 5)
    log.maybe_increment_log_start_offset(3)
    node.directories.write_checkpoints(path, {KEY: 5})
    return node


def go(node: Node, path: str = PATHS[0]) -> None:
    node.files.rename(f"{path}/t-0", f"{path}.away")


def come(node: Node, path: str = PATHS[0]) -> None:
    node.files.rename(f"{path}.away", f"{path}/t-0")


def empty(node: Node) -> None:
    for name in node.files.listdir(f"{PATHS[0]}/t-0"):
        node.files.unlink(f"{PATHS[0]}/t-0/{name}")


def check_lost(node: Node) -> None:
    with pytest.raises(LogLost):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.directories.release(*KEY)


def check_whole(node: Node, path: str = PATHS[0]) -> None:
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (path, 3, 5)


def gone(path: str = PATHS[0]) -> Node:
    """It was away when the node started, which has said so."""
    node = made(path)
    go(node, path)
    node.crash()
    check_lost(node)
    return node


# -- an empty directory ----------------------------------------------------------------------------------------------


def test_what_came_back_empty_is_lost_also_at_the_next_start() -> None:
    """The mount point was made again, without its file system."""
    node = gone()
    node.files.makedirs(f"{PATHS[0]}/t-0")
    check_lost(node)
    for _ in range(2):
        node.directories.write_checkpoints(PATHS[0])
        node.crash()
        check_lost(node)
    node.files.remove_tree(f"{PATHS[0]}/t-0")
    come(node)
    check_whole(node)


def test_what_is_empty_when_the_node_starts_is_lost() -> None:
    node = made()
    empty(node)
    node.crash()
    check_lost(node)
    assert node.directories.found == []


def test_a_clean_stop_does_not_vouch_for_what_was_emptied_after_it() -> None:
    node = made()
    node.directories.close({KEY: 5}, broker_epoch=7)
    empty(node)
    node.open()
    assert node.directories.previous_broker_epoch is None
    check_lost(node)


def test_what_is_emptied_while_the_node_runs_is_lost() -> None:
    node = made()
    node.directories.at(PATHS[0]).close_partition(*KEY)
    node.directories.release(*KEY)
    empty(node)
    check_lost(node)


def test_what_begins_anew_in_an_empty_directory_inherits_nothing() -> None:
    node = gone()
    node.files.makedirs(f"{PATHS[0]}/t-0")
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=True)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[0], 0, 0)
    assert node.directories.at(PATHS[0]).high_watermarks.get(KEY, 0) == 0


def copy(node: Node, part: float, path: str = PATHS[0]) -> None:
    """What is away is copied to its place in the log directory of the path, of the records only a part."""
    node.files.makedirs(f"{path}/t-0")
    for name in node.files.listdir(f"{PATHS[0]}.away"):
        source = node.files.open(f"{PATHS[0]}.away/{name}", os.O_RDONLY)
        data = node.files.pread(source, 1 << 20, 0)
        if name.endswith(".log"):
            data = data[: int(len(data) * part)]
        target = node.files.open(f"{path}/t-0/{name}", os.O_RDWR | os.O_CREAT)
        node.files.pwrite(target, data, 0)
        for fd in (source, target):
            node.files.close(fd)


def test_an_empty_directory_hides_nothing_that_was_moved_to_another_one() -> None:
    """While the node was stopped."""
    node = made()
    go(node)
    node.directories.abandon()
    node.files.makedirs(f"{PATHS[0]}/t-0")
    copy(node, 1, PATHS[1])
    node.open()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[1], 5)


def test_nor_does_it_let_an_older_one_lead_that_was_set_aside() -> None:
    node = Node()
    fill(node.begin(FIRST, PATHS[0])[1], 2)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 2)
    with node.failing("list_directories", beginning=PATHS[0]):
        node.crash()
    _, log = node.begin(FIRST, PATHS[1])
    fill(log, 5)
    node.directories.write_checkpoints(PATHS[1], {KEY: 5})
    go(node, PATHS[1])
    node.files.makedirs(f"{PATHS[1]}/t-0")
    for _ in range(2):
        node.crash()
        check_lost(node)
        node.directories.write_checkpoints(PATHS[1])


@pytest.fixture
def young() -> Node:
    """Killed before checkpoints named its partition, which the next start found; then it vanished."""
    node = Node()
    fill(node.begin(FIRST, PATHS[0])[1], 5)
    node.crash()
    go(node)
    check_lost(node)
    return node


def test_what_no_checkpoint_names_does_not_come_back_empty_either(young: Node) -> None:
    young.files.makedirs(f"{PATHS[0]}/t-0")
    check_lost(young)
    young.files.remove_tree(f"{PATHS[0]}/t-0")
    come(young)
    assert young.begin(FIRST, is_new=False, may_begin_anew=False)[1].log_end_offset == 5


# -- a part of it ----------------------------------------------------------------------------------------------------


def test_what_has_come_back_in_part_is_lost_still() -> None:
    """A copy is under way."""
    node = gone()
    for part in (0, 0.5, 0.9):
        copy(node, part)
        check_lost(node)
    copy(node, 1)
    check_whole(node)


# -- another topic's -------------------------------------------------------------------------------------------------


def test_what_comes_in_its_place_is_not_opened_for_it_if_it_is_of_another_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The directory that the start found could not be opened at first."""
    node = Node()
    fill(node.begin(SECOND, PATHS[0])[1], 5)
    go(node)
    node.directories.abandon()
    node.files.rename(f"{PATHS[0]}.away", f"{PATHS[0]}.second")
    node.open()
    fill(node.begin(FIRST, PATHS[0])[1], 5)
    node.crash()

    def fail(*_: object, **__: object) -> PartitionLog:
        raise KafkaError(ErrorCode.kafka_storage_error)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "open", fail)
        with pytest.raises(KafkaError):
            node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.directories.release(*KEY)
    go(node)
    node.files.rename(f"{PATHS[0]}.second", f"{PATHS[0]}/t-0")
    with pytest.raises(LogStoreError):
        node.begin(FIRST, is_new=False, may_begin_anew=False)


def test_nor_if_it_had_vanished_before_it_was_opened(young: Node) -> None:
    other = f"{PATHS[0]}/t-0"
    young.files.rename(f"{PATHS[0]}.away", other)
    young.files.unlink(f"{other}/partition.metadata")
    ensure_topic_id(young.files, other, SECOND)
    with pytest.raises(LogStoreError):
        young.begin(FIRST, is_new=False, may_begin_anew=False)


# -- to the log directory where it was -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("may_begin_anew", [False, True])
def test_it_is_opened_where_it_was(path: str, may_begin_anew: bool) -> None:
    """Nor is it begun anew beside that, which the next start would refuse."""
    node = gone(path)
    come(node, path)
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=may_begin_anew)
    assert (home, log.log_start_offset, log.log_end_offset) == (path, 3, 5)
    node.crash()
    check_whole(node, path)


def test_it_is_opened_where_it_was_also_if_it_was_set_aside_meanwhile() -> None:
    """As far as it was there: its place was free for others."""
    node = gone(PATHS[1])
    node.directories.set_aside("t", 0, FIRST, 5)
    come(node, PATHS[1])
    check_whole(node, PATHS[1])


@pytest.mark.parametrize("path", PATHS)
def test_of_two_places_it_is_the_one_that_had_more_of_it(path: str) -> None:
    """It had moved, and the checkpoints of where it had been before say so not yet."""
    (older,) = set(PATHS) - {path}
    node = made(path)
    node.directories.abandon()
    go(node, path)
    write_offsets(node.files, f"{older}/{RECOVERY_POINT_FILE}", {KEY: 2})
    node.open()
    check_lost(node)
    come(node, path)
    check_whole(node, path)


def test_a_new_topic_of_the_name_may_have_its_place_elsewhere() -> None:
    node = made(PATHS[1])
    go(node, PATHS[1])
    node.crash()
    home, log = node.begin(SECOND, PATHS[0], is_new=True, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 0)
