"""A change of places is unclear, and the topic is deleted: nothing is missed, wherever the process ends then."""

from __future__ import annotations

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill

from barnabas.log.moving.future_directory import create_future, future_name
from barnabas.log.moving.future_log import (
    FutureLog,
    PlaceUnclear,
    remove_unclear_former,
    remove_unclear_home,
)

KEY = ("t", 0)


@pytest.mark.parametrize("is_full", [False, True], ids=["checkpoints written", "no room for checkpoints"])
def test_what_is_deleted_when_its_place_is_unclear_is_not_missed(is_full: bool) -> None:
    """It is gone from both directories, and the process ends before anybody is told."""
    node = Node()
    path, log = node.begin(FIRST, PATHS[0])
    fill(log, 3)
    node.directories.write_checkpoints(path, {KEY: 3})
    former, home = (node.directories.at(each) for each in PATHS)
    name = future_name("t", 0, node.environment.new_id())
    create_future(node.files, home.path, name, FIRST)
    future = FutureLog(home, name, log)
    future.complete(1 << 20)
    future.prepare(3)
    with node.failing_sync(home.path), pytest.raises(PlaceUnclear):
        future.promote(former)
    remove_unclear_home(home, KEY, name)
    if is_full:
        with node.full(former.path):
            remove_unclear_former(former, log)
    else:
        remove_unclear_former(former, log)
    assert not any(each.endswith("-moving") for each in node.names(former.path))
    node.crash()
    assert node.begin(SECOND, PATHS[0], is_new=False, may_begin_anew=False)[1].log_end_offset == 0
    assert (node.names(PATHS[0]), node.names(PATHS[1])) == (["t-0"], [])
