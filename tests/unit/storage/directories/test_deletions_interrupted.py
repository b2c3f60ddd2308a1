"""A partition is deleted, set aside or taken back; at any call the process ends, the power goes or the disk refuses.

Whatever comes of it: nothing that was deleted is missed afterwards, and of nothing that is lost is that hidden.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from two_disks import FIRST, PATHS, SECOND, Node, fill

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.moving.future_log import retire
from barnabas.storage.directories.errors import LogLost

CHANGES: Final = ("rename", "unlink", "makedirs", "remove_tree", "fsync", "pwrite")
READS: Final = ("stat", "listdir", "list_directories")
KEY: Final = ("t", 0)
ASIDE: Final = StrayKey(FIRST, 0)

Action = Callable[[], object]


class EndedError(BaseException):
    """The process ends here: no handler of the code under test may see it as an error of the disk."""


class Interruption:
    """What happens at the call with the number `at`, and, if it `lasts`, at each that follows."""

    def __init__(self, node: Node, at: int, *, ends: bool, lasts: bool = False) -> None:
        self._node = node
        self._at = at
        self._ends = ends
        self._lasts = lasts
        self.calls = 0

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(EndedError):
            for name in CHANGES if self._ends else CHANGES + READS:
                patch.setattr(self._node.files, name, self._around(name))
            yield

    def _around(self, name: str) -> Callable[..., Any]:
        real = getattr(self._node.files, name)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls < self._at or (self.calls > self._at and not self._lasts):
                return real(*arguments)
            if self._ends:
                raise EndedError
            if name == "remove_tree":
                return None
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return call


def begin_first(node: Node, path: str = PATHS[0]) -> tuple[str, Any]:
    """Three records, of which the oldest was deleted; checkpoints say all of it."""
    path, log = node.begin(FIRST, path)
    fill(log, 3)
    log.maybe_increment_log_start_offset(1)
    node.directories.write_checkpoints(path, {KEY: 3})
    return path, log


def move_first(node: Node) -> None:
    """To the second directory, while the disk of the first takes no checkpoints."""
    path, log = begin_first(node)
    node.move(log)
    with node.full("/a"):
        retire(node.directories.at(path), log)
    node.directories.write_checkpoints(PATHS[1], {KEY: 3})


def set_aside(node: Node) -> None:
    node.directories.set_aside("t", 0, FIRST, 3)


def delete_stray(node: Node) -> None:
    node.directories.strays.delete(ASIDE)


def take_back(node: Node) -> None:
    try:
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    except KafkaError:
        node.directories.release(*KEY)


def deleting(node: Node) -> Action:
    begin_first(node)
    return node.go


def deleting_moved(node: Node) -> Action:
    move_first(node)
    return node.go


def setting_aside(node: Node) -> Action:
    begin_first(node)
    node.directories.at(PATHS[0]).close_partition(*KEY)
    node.directories.release(*KEY)
    return lambda: set_aside(node)


def setting_moved_aside(node: Node) -> Action:
    move_first(node)
    node.directories.at(PATHS[1]).close_partition(*KEY)
    node.directories.release(*KEY)
    return lambda: set_aside(node)


def deleting_stray(node: Node) -> Action:
    """The checkpoints speak of it yet."""
    begin_first(node)
    node.directories.release(*KEY)
    with node.full("/a/log/recovery"):
        set_aside(node)
    return lambda: delete_stray(node)


def deleting_moved_stray(node: Node) -> Action:
    """The checkpoints of where it had been speak of it yet."""
    move_first(node)
    node.directories.release(*KEY)
    with node.full("/a"):
        set_aside(node)
    return lambda: delete_stray(node)


def taking_back(node: Node) -> Action:
    setting_aside(node)()
    return lambda: take_back(node)


def taking_back_unwritten(node: Node) -> Action:
    deleting_stray(node)
    return lambda: take_back(node)


KINDS: Final[dict[str, tuple[dict[str, bool], Callable[[Node], None]]]] = {
    "killed": ({"ends": True}, Node.crash),
    "power": ({"ends": True}, Node.lose_power),
    "refused": ({"ends": False}, lambda node: None),
    "refused for long": ({"ends": False, "lasts": True}, lambda node: None),
    "refused for long, killed": ({"ends": False, "lasts": True}, Node.crash),
}


def interrupted(prepare: Callable[[Node], Action], kind: str) -> Iterator[Node]:
    """The node as it is after an interruption at each call."""
    how, what_follows = KINDS[kind]
    for at in range(1, 1000):
        node = Node()
        act = prepare(node)
        interruption = Interruption(node, at, **how)
        with interruption.entered():
            act()
        if interruption.calls < at:
            return
        what_follows(node)
        yield node
    pytest.fail("it has no end")


def check_first(node: Node) -> bool:
    """Whether the first topic's partition is still there, and nobody has said in this process that it is deleted: then
    it is as it was, and open.
    """
    is_aside = ASIDE in node.directories.strays.keys
    is_there = is_aside or any("t-0" in node.names(path) for path in PATHS)
    if not is_there or KEY in node.directories._undeleted:
        return False
    if node.directories._claims[KEY]:
        node.directories.release(*KEY)
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    return True


def check_nothing_is_missed(node: Node) -> None:
    """The second topic's partition, where the first one's was: it has lost nothing, in this process and the next."""
    for is_next in (False, True):
        if is_next:
            node.crash()
        _, log = node.begin(SECOND, PATHS[0], is_new=False, may_begin_anew=False)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    fill(log, 2)
    check_a_loss_shows(node, 2)


def check_a_loss_shows(node: Node, high_watermark: int) -> None:
    for path in PATHS:
        node.directories.write_checkpoints(path, {KEY: high_watermark})
    (home,) = (path for path in PATHS if "t-0" in node.names(path))
    assert [name for path in PATHS for name in node.names(path)] == ["t-0"]
    node.files.rename(f"{home}/t-0", f"{os.path.dirname(home)}/away")
    node.crash()
    for topic_id in (FIRST, SECOND):
        with pytest.raises(LogLost):
            node.begin(topic_id, home, is_new=False, may_begin_anew=False)


SCENARIOS: Final[dict[Callable[[Node], Action], int]] = {
    deleting: 15,
    deleting_moved: 25,
    setting_aside: 15,
    setting_moved_aside: 25,
    deleting_stray: 2,
    deleting_moved_stray: 2,
    taking_back: 15,
    taking_back_unwritten: 24,
}
"""With the calls that each has at least: it must not end before it has begun."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prepare", SCENARIOS)
def test_what_was_deleted_is_not_missed_whatever_came_in_between(
    prepare: Callable[[Node], Action], kind: str
) -> None:
    points = 0
    for node in interrupted(prepare, kind):
        points += 1
        if ASIDE in node.directories.strays.keys:
            delete_stray(node)
        elif check_first(node):
            node.go()
        check_nothing_is_missed(node)
    assert points >= SCENARIOS[prepare]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prepare", SCENARIOS)
def test_what_comes_again_is_as_it_was_and_its_loss_shows(
    prepare: Callable[[Node], Action], kind: str
) -> None:
    points = 0
    for node in interrupted(prepare, kind):
        points += 1
        if check_first(node):
            check_a_loss_shows(node, 3)
    assert points >= SCENARIOS[prepare]
