"""What a run of all tests leaves out, which of them run alone and which first, what the programs that tests start are
given, and Hypothesis' profile.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

TESTS: Final = Path(__file__).parent
ONLY_BY_NAME: Final = frozenset({TESTS / "containers", TESTS / "kubernetes"})
"""Folders that run when they are named: they need an engine or root, some minutes, and the machine's network."""


# gRPC would stop and start its threads around every fork of this process, which breaks the child where one of them is
# at work: PySpark starts its JVM by such a fork. It has to be said before gRPC is loaded; no child of ours uses gRPC
# before it is another program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# How long an example takes says more of the machine than of the code: a busy one is no failure. What Hypothesis itself
# has chosen (in CI: always the same examples) stays.
settings.register_profile("barnabas", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("barnabas")


def pytest_configure() -> None:
    """Let programs be interrupted, as from a terminal: a job that a script began in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _name_event_loops()


def _name_event_loops() -> None:
    """Let an event loop say which test made it, and none be made in passing for who asks for one where none runs.

    One that nobody closes is found by the collector, in whichever test runs then, and that test fails.
    """
    begin, describe = asyncio.BaseEventLoop.__init__, asyncio.BaseEventLoop.__repr__

    def begin_with_maker(loop: asyncio.BaseEventLoop) -> None:
        begin(loop)
        vars(loop)["made_in"] = os.environ.get("PYTEST_CURRENT_TEST", "no test")

    def describe_with_maker(loop: object) -> str:
        return f"{describe(loop)} made in {vars(loop).get('made_in')}"

    asyncio.BaseEventLoop.__init__ = begin_with_maker  # type: ignore[assignment,method-assign]
    asyncio.BaseEventLoop.__repr__ = describe_with_maker  # type: ignore[method-assign]
    asyncio.set_event_loop(None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave those folders out of a run that names neither them nor something in them."""
    if collection_path not in ONLY_BY_NAME:
        return None
    named = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return None if any(each.resolve().is_relative_to(collection_path) for each in named) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests that run alone come first, so that nobody who is to be alone waits for a long test of others;
    then the simulation, a quarter of an hour in one file. Unit tests come last: their files are done in seconds, so
    several processes end at about the same time.
    """
    alone = {item.path for item in items if _is_alone(item)}

    def place(item: pytest.Item) -> int:
        if item.path in alone:
            return 0
        if item.path.is_relative_to(TESTS / "simulation"):
            return 1
        return 3 if item.path.is_relative_to(TESTS / "unit") else 2

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was collected stays to the end, some hundreds of megabytes: no collection of garbage looks through it again,
    which took a tenth of unit tests' time.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Where several processes share the tests (`-n 2`), one that is marked `alone` has the machine to itself."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    if not _turn.is_alone:
        _turn.take(is_alone=_is_alone(item))
    try:
        return (yield)
    finally:
        # The next such test goes on at once: in between, others would run alone as well.
        if not (_turn.is_alone and nextitem is not None and _is_alone(nextitem)):
            _turn.end()


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


class _Turn:
    """Owns this process' part in a lock that tests have together or, where they are alone, for themselves.

    What is locked stands here anyway, and the locks end with their process.
    """

    def __init__(self) -> None:
        self.is_alone = False
        self._locks = contextlib.ExitStack()

    def take(self, *, is_alone: bool) -> None:
        # Who waits keeps the door shut: otherwise one that is to be alone would wait for a moment without any others.
        with _locked(Path(__file__), fcntl.LOCK_EX):
            self._locks.enter_context(_locked(TESTS, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH))
        self.is_alone = is_alone

    def end(self) -> None:
        self.is_alone = False
        self._locks.close()


_turn: Final = _Turn()


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child may still have it
        os.close(descriptor)
