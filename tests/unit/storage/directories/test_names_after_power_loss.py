"""A directory gives up a partition's name durably, before another one has it: the next start finds one of that name."""

from __future__ import annotations

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill, sync_names

from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.small_files import write_at

KEY = ("t", 0)
ASIDE = StrayKey(FIRST, 0)


@pytest.fixture
def node() -> Node:
    """Its partition, which no checkpoint names, has three records in the first directory."""
    node = Node()
    _, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    return node


def set_aside(node: Node) -> None:
    node.directories.release(*KEY)
    node.directories.set_aside("t", 0, FIRST, 3)
    assert node.directories.strays.keys == [ASIDE]


def begin_second_and_lose_power(node: Node) -> None:
    """Its directory in the second one is on the disk, and nothing that is in it."""
    node.begin(SECOND, PATHS[1])
    sync_names(node, PATHS[1])
    node.lose_power()


@pytest.mark.parametrize("is_written", [False, True], ids=["no checkpoint", "checkpoints not written"])
def test_what_was_set_aside_does_not_get_its_name_back(node: Node, is_written: bool) -> None:
    """Without a checkpoint that names it, no checkpoint is written that makes the names durable with it."""
    if is_written:
        node.directories.write_checkpoints(PATHS[0], {KEY: 3})
    node.crash()
    with node.full(f"{PATHS[0]}/recovery"):
        node.directories.claim("t", 0, FIRST, is_new=False)
        set_aside(node)
        begin_second_and_lose_power(node)
    assert node.directories.strays.keys == [ASIDE]
    assert [each.topic_id for each in node.directories.found] == [None]


def test_what_was_set_aside_does_not_come_back_half_once_it_was_deleted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new name is on the disk before anything of it goes."""
    set_aside(node)
    order = []
    real_fsync, real_remove = node.files.fsync, node.files.remove_tree

    def fsync(fd: int) -> None:
        real_fsync(fd)
        if node.files._open[fd].path == PATHS[0]:
            order.append([name.rsplit("-", 1)[1] for name in node.names(PATHS[0])])

    def remove_tree(path: str) -> None:
        order.append(["removed"])
        real_remove(path)

    monkeypatch.setattr(node.files, "fsync", fsync)
    monkeypatch.setattr(node.files, "remove_tree", remove_tree)
    node.directories.strays.delete(ASIDE)
    assert order[:2] == [["delete"], ["removed"]]


def test_a_stray_whose_new_name_may_not_be_on_the_disk_stays_whole(node: Node) -> None:
    """It may come back under its own. The next start lets it go."""
    set_aside(node)
    with node.failing_sync(PATHS[0]):
        node.directories.strays.delete(ASIDE)
    (left,) = node.names(PATHS[0])
    assert node.files.listdir(f"{PATHS[0]}/{left}")
    assert node.directories.strays.keys == []
    node.crash()
    assert (node.names(PATHS[0]), node.directories.strays.keys) == ([], [])


@pytest.mark.parametrize("first", PATHS)
def test_what_has_neither_an_id_nor_records_gives_way(first: str) -> None:
    """The power went before the next topic had anything, and the disk had lied about the name that was given up."""
    node = Node()
    _, log = node.begin(FIRST, first)
    fill(log, 3)
    node.directories.abandon()
    (second,) = set(PATHS) - {first}
    node.files.makedirs(f"{second}/t-0")
    for name in ("partition.metadata", "00000000000000000000.log"):
        write_at(node.files, f"{second}/t-0/{name}", 0, b"")
    node.open()
    (found,) = node.directories.found
    assert (found.topic_id, node.names(second)) == (FIRST, [])
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (first, 3)


def test_of_several_with_neither_one_stays() -> None:
    node = Node()
    for path in PATHS:
        node.files.makedirs(f"{path}/t-0")
    node.crash()
    assert [each.topic_id for each in node.directories.found] == [None]
    assert node.names(PATHS[0]) + node.names(PATHS[1]) == ["t-0"]


def test_a_disk_that_does_not_let_it_give_way_is_offline(node: Node) -> None:
    node.directories.abandon()
    node.files.makedirs(f"{PATHS[1]}/t-0")
    with node.failing("rename", beginning=PATHS[1]):
        node.open()
    assert node.directories.offline == {PATHS[1]}
    assert [each.topic_id for each in node.directories.found] == [FIRST]
