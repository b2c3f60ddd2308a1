"""A partition's directory vanishes: what had records, or was found by the start, is missed, unless it was deleted, and
leaves nothing to whatever has its name next.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.errors import LogLost

KEY = ("t", 0)


@pytest.fixture
def node() -> Node:
    """Its partition in the first directory has five records, three of them deleted; checkpoints say all of it."""
    node = Node()
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 5)
    log.maybe_increment_log_start_offset(3)
    node.directories.write_checkpoints(path, {KEY: 5})
    return node


def vanish(node: Node, path: str = PATHS[0]) -> None:
    node.files.rename(f"{path}/t-0", f"{path}.away")


def vanish_closed(node: Node) -> None:
    node.directories.at(PATHS[0]).close_partition(*KEY)
    vanish(node)
    node.directories.release(*KEY)


def vanish_while_stopped(node: Node) -> None:
    node.directories.abandon()
    vanish(node)
    node.open()


def delete(node: Node) -> None:
    node.directories.delete_partition("t", 0, FIRST)


def check_lost(node: Node) -> None:
    with pytest.raises(LogLost):
        node.begin(FIRST, PATHS[0], is_new=False, may_begin_anew=False)
    node.directories.release(*KEY)


def check_begins(node: Node, *, may_begin_anew: bool = False) -> None:
    home, log = node.begin(SECOND, PATHS[0], is_new=False, may_begin_anew=may_begin_anew)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[0], 0, 0)


# -- while the node runs --------------------------------------------------------------------------------------------


def test_what_was_gone_when_it_was_to_go_leaves_nothing(node: Node) -> None:
    vanish_closed(node)
    delete(node)
    check_begins(node)
    assert node.directories.at(PATHS[0]).recovery_points.get(KEY, 0) == 0


def test_nor_is_it_missed_by_the_next_start(node: Node) -> None:
    """Although the disk was full."""
    vanish_closed(node)
    with node.full(PATHS[0]):
        delete(node)
    node.crash()
    check_begins(node)


def test_what_may_begin_anew_inherits_nothing(node: Node) -> None:
    vanish_closed(node)
    check_begins(node, may_begin_anew=True)


def test_what_vanishes_before_it_is_tried_again_is_lost(node: Node) -> None:
    """Its opening failed for now."""
    node.crash()
    with node.failing("stat", beginning=f"{PATHS[0]}/t-0"), pytest.raises((KafkaError, OSError)):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    vanish(node)
    node.directories.release(*KEY)
    for _ in range(2):
        check_lost(node)
    node.directories.write_checkpoints(PATHS[0])
    node.crash()
    check_lost(node)


def test_what_comes_again_is_lost_no_longer(node: Node) -> None:
    vanish_closed(node)
    check_lost(node)
    node.files.makedirs(f"{PATHS[0]}/t-0")
    check_lost(node)
    node.files.remove_tree(f"{PATHS[0]}/t-0")
    node.files.rename(f"{PATHS[0]}.away", f"{PATHS[0]}/t-0")
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)


def test_what_is_open_goes_on(node: Node) -> None:
    """Its files are there as long as somebody has them open."""
    vanish(node)
    assert node.begin(FIRST, is_new=False, may_begin_anew=False)[1].log_end_offset == 5


def test_what_was_begun_anew_in_vain_is_lost_still(node: Node) -> None:
    """The follower's disk was full; then it was to lead."""
    vanish_closed(node)
    with node.full(f"{PATHS[0]}/t-0"), pytest.raises(KafkaError):
        node.begin(FIRST, is_new=False, may_begin_anew=True)
    node.directories.release(*KEY)
    check_lost(node)
    assert node.begin(FIRST, is_new=False, may_begin_anew=True)[1].log_end_offset == 0
    node.directories.release(*KEY)
    assert node.begin(FIRST, is_new=False, may_begin_anew=False)[1].log_end_offset == 0


@pytest.fixture
def young() -> Node:
    """Killed before checkpoints named its partition, which the next start found; then it vanished."""
    node = Node()
    fill(node.begin(FIRST, PATHS[0])[1], 5)
    node.crash()
    vanish(node)
    return node


def test_what_no_checkpoint_names_is_lost_as_well(young: Node) -> None:
    for _ in range(2):
        check_lost(young)


def test_a_clean_stop_does_not_vouch_for_what_no_checkpoint_named(young: Node) -> None:
    """The next start cannot know that it is missing."""
    check_lost(young)
    young.directories.close({}, broker_epoch=7)
    young.open()
    assert young.directories.previous_broker_epoch is None


def test_a_clean_stop_counts_once_what_was_missed_is_brought_back(node: Node) -> None:
    node.directories.close({KEY: 5}, broker_epoch=6)
    vanish(node)
    node.open()
    check_lost(node)
    node.directories.close({}, broker_epoch=7)
    node.files.rename(f"{PATHS[0]}.away", f"{PATHS[0]}/t-0")
    node.open()
    assert node.directories.previous_broker_epoch == 7


def test_what_never_had_a_record_may_be_brought_back_as_well() -> None:
    node = Node()
    node.begin(FIRST, PATHS[0])
    node.crash()
    vanish(node)
    check_lost(node)
    node.files.rename(f"{PATHS[0]}.away", f"{PATHS[0]}/t-0")
    assert node.begin(FIRST, is_new=False, may_begin_anew=False)[1].log_end_offset == 0


def test_what_is_lost_is_not_new_when_its_topic_comes_again(node: Node) -> None:
    """A backup of the metadata did not know it."""
    vanish_closed(node)
    node.directories.set_aside("t", 0, FIRST, 5)
    for home in PATHS:
        with pytest.raises(LogLost):
            node.begin(FIRST, home, is_new=True, may_begin_anew=False)
        node.directories.release(*KEY)


def test_nor_is_one_that_had_the_name_of_another_when_it_came(node: Node) -> None:
    """The former one was deleted after that."""
    node.directories.claim("t", 0, SECOND, is_new=True)
    delete(node)
    home, log = node.begin(SECOND, PATHS[0], is_new=False, may_begin_anew=False)
    fill(log, 5)
    node.directories.write_checkpoints(home, {KEY: 5})
    vanish(node)
    for _ in range(2):
        node.directories.release(*KEY)
    node.directories.set_aside("t", 0, SECOND, 5)
    with pytest.raises(LogLost):
        node.begin(SECOND, PATHS[0], is_new=True, may_begin_anew=False)


def test_nor_is_what_vanished_while_it_was_open_and_no_checkpoint_named() -> None:
    node = Node()
    fill(node.begin(FIRST, PATHS[0])[1], 5)
    vanish(node)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    for home in PATHS:
        with pytest.raises(LogLost):
            node.begin(FIRST, home, is_new=True, may_begin_anew=False)
        node.directories.release(*KEY)


def test_nor_is_what_is_taken_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """And vanished before it could be opened."""
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    node.crash()

    def fail(*_: object, **__: object) -> PartitionLog:
        raise KafkaError(ErrorCode.kafka_storage_error)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "open", fail)
        with pytest.raises(KafkaError):
            node.begin(FIRST, is_new=True, may_begin_anew=False)
    vanish(node)
    with pytest.raises(LogLost):
        node.begin(FIRST, is_new=True, may_begin_anew=False)


def vanish_aside(node: Node) -> None:
    """The partition is set aside, and gone from there."""
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    (name,) = node.names(PATHS[0])
    node.files.rename(f"{PATHS[0]}/{name}", f"{PATHS[0]}.away")


def test_what_was_set_aside_and_has_vanished_is_lost(node: Node) -> None:
    """Also after the start that follows: the checkpoints name it from when it was asked for."""
    vanish_aside(node)
    for _ in range(2):
        check_lost(node)
    node.crash()
    check_lost(node)
    node.files.rename(f"{PATHS[0]}.away", f"{PATHS[0]}/t-0")
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)


def test_it_may_begin_anew_as_others_may(node: Node) -> None:
    vanish_aside(node)
    for may_begin_anew in (True, False):
        _, log = node.begin(FIRST, is_new=False, may_begin_anew=may_begin_anew)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        node.crash()


def test_a_new_topic_of_the_name_misses_nothing_that_no_checkpoint_names(young: Node) -> None:
    """The former one was set aside, so far as it was there."""
    young.directories.claim("t", 0, FIRST, is_new=False)
    young.directories.release(*KEY)
    young.directories.set_aside("t", 0, FIRST, 5)
    home, log = young.begin(SECOND, PATHS[0], is_new=True, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 0)


def test_what_no_checkpoint_names_begins_anew(young: Node) -> None:
    assert young.begin(FIRST, is_new=False, may_begin_anew=True)[1].log_end_offset == 0


@pytest.fixture
def newer(node: Node) -> Node:
    """Five records are set aside in the first directory; in the second are seven, begun while that was offline."""
    node.directories.set_aside("t", 0, FIRST, 5)
    with node.failing("list_directories", beginning=PATHS[0]):
        node.crash()
    path, log = node.begin(FIRST, PATHS[1], is_new=True)
    fill(log, 7)
    node.directories.write_checkpoints(path, {KEY: 7})
    node.crash()
    return node


def away_while_stopped(node: Node) -> None:
    node.directories.abandon()
    vanish(node, PATHS[1])
    node.open()


def away_after_it_failed(node: Node) -> None:
    with node.failing("stat", beginning=f"{PATHS[1]}/t-0"), pytest.raises((KafkaError, OSError)):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    node.directories.release(*KEY)
    vanish(node, PATHS[1])


def away_after_it_was_closed(node: Node) -> None:
    assert node.begin(FIRST, is_new=False, may_begin_anew=False)[1].log_end_offset == 7
    node.directories.at(PATHS[1]).close_partition(*KEY)
    node.directories.release(*KEY)
    vanish(node, PATHS[1])


@pytest.mark.parametrize("goes", [away_while_stopped, away_after_it_failed, away_after_it_was_closed])
def test_what_was_set_aside_earlier_does_not_lead_for_what_vanished(
    newer: Node, goes: Callable[[Node], None]
) -> None:
    """It is older: as a follower it gets the rest."""
    goes(newer)
    check_lost(newer)
    home, log = newer.begin(FIRST, is_new=False, may_begin_anew=True)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[0], 3, 5)


@pytest.mark.parametrize("goes", [away_while_stopped, away_after_it_failed, away_after_it_was_closed])
def test_it_is_brought_back_beside_what_was_set_aside_earlier(
    newer: Node, goes: Callable[[Node], None]
) -> None:
    goes(newer)
    check_lost(newer)
    newer.files.rename(f"{PATHS[1]}.away", f"{PATHS[1]}/t-0")
    home, log = newer.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[1], 7)


# -- while it was stopped -------------------------------------------------------------------------------------------


def test_what_is_missing_is_so_no_longer_once_it_was_to_go(node: Node) -> None:
    vanish_while_stopped(node)
    check_lost(node)
    node.directories.claim("t", 0, FIRST, is_new=False)
    node.directories.release(*KEY)
    delete(node)
    check_begins(node)


def test_a_new_topic_of_the_name_misses_nothing(node: Node) -> None:
    vanish_while_stopped(node)
    home, log = node.begin(SECOND, PATHS[0], is_new=True, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[0], 0, 0)


def test_a_log_directory_where_nothing_is_missing_any_more_is_empty(node: Node) -> None:
    """So it can be taken away, and the node says that nothing is lost with it."""
    vanish_while_stopped(node)
    home = node.directories.at(PATHS[0]).properties.directory_id
    check_lost(node)
    assert home not in node.directories.marker(1, ()).empty_log_directories
    delete(node)
    assert home in node.directories.marker(1, ()).empty_log_directories


def test_setting_aside_what_vanished_is_no_order_to_delete_it(node: Node) -> None:
    """Metadata that do not know it may be older than it."""
    vanish_while_stopped(node)
    node.directories.claim("t", 0, FIRST, is_new=False)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 5)
    check_lost(node)
    node.directories.write_checkpoints(PATHS[0])
    node.crash()
    check_lost(node)
