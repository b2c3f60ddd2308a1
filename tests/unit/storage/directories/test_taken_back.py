"""A partition that was set aside comes back as it was, whatever has had its name meanwhile."""

from __future__ import annotations

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill, sync_names

from barnabas.log.checkpoints.stray import StrayKey

KEY = ("t", 0)
ASIDE = StrayKey(FIRST, 0)


@pytest.fixture
def node() -> Node:
    """Its first topic's partition, with three records, was set aside in the first directory."""
    node = Node()
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {KEY: 3})
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 3)
    assert node.directories.strays.path_of(ASIDE) == path
    return node


def check_taken_back(node: Node) -> None:
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 3)
    assert (node.names(PATHS[0]), node.names(PATHS[1])) == (["t-0"], [])


@pytest.mark.parametrize("second", PATHS)
def test_a_directory_without_a_topic_id_is_not_in_its_place(node: Node, second: str) -> None:
    """Another topic had begun there, and the power went before it said so."""
    node.begin(SECOND, second)
    sync_names(node, second)
    node.lose_power()
    (found,) = node.directories.found
    assert (found.topic_id, node.directories.strays.keys) == (None, [ASIDE])
    check_taken_back(node)


@pytest.mark.parametrize("second", PATHS)
def test_a_directory_without_a_topic_id_keeps_its_records(node: Node, second: str) -> None:
    """Nobody knows whose they are: neither they nor those that were set aside go."""
    path, log = node.begin(SECOND, second)
    fill(log, 2)
    node.files.unlink(f"{path}/t-0/partition.metadata")
    node.crash()
    home, log = node.begin(FIRST, is_new=False)
    assert (home, log.log_end_offset) == (second, 2)
    assert node.directories.strays.keys == [ASIDE]


def test_what_is_still_to_be_deleted_under_its_name_is_not_in_its_place(node: Node) -> None:
    """In another directory, which refused that the first time."""
    node.begin(SECOND, PATHS[1])
    with node.failing("rename", ending="/t-0"):
        node.go(SECOND)
    assert node.names(PATHS[1]) == ["t-0"]
    check_taken_back(node)


def test_its_high_watermark_is_the_highest_that_is_known(node: Node) -> None:
    """It was not opened before it was set aside again: only the checkpoints know one."""
    node.begin(FIRST)
    node.crash()
    node.directories.claim("t", 0, FIRST, is_new=False)
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 0)
    assert node.directories.strays.keys == [ASIDE]
    check_taken_back(node)
    assert node.directories.at(PATHS[0]).high_watermarks[KEY] == 3
