"""In which order a log directory's logs are opened and removed, and that a large topic holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from barnabas.kernel.clock import SystemClock
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.storage import limits
from barnabas.storage.directories.directory_work import DirectoryWork, Opened


class Replica:
    """What the work needs of one."""

    is_offline = False

    def __init__(self, topic: str, index: int = 0) -> None:
        self.topic = topic
        self.topic_id = uuid.uuid5(uuid.NAMESPACE_OID, topic).bytes
        self.index = index


class Directory:
    """One whose thread does a piece of work when it is told to."""

    path = "/data"

    def __init__(self) -> None:
        self.opening: Any = self
        self.said: list[str] = []
        self.graces: list[int] = []
        self.given: list[Future[Any]] = []
        self._calls: list[Any] = []
        self.work = DirectoryWork(
            self,  # type: ignore[arg-type]
            SystemClock(),
            open_all=self._open_all,  # type: ignore[arg-type]
            remove_all=self._remove_all,  # type: ignore[arg-type]
            on_opened=lambda _, __: None,
            on_set_aside=lambda: None,
        )

    def submit(self, call: Any, *arguments: Any) -> Future[Any]:
        """As an executor does."""
        future: Future[Any] = Future()
        self.given.append(future)
        self._calls.append(lambda: future.set_result(call(*arguments)))
        return future

    async def step(self) -> None:
        """The thread does what it was given, and what follows from that is given to it."""
        for _ in range(5):
            await asyncio.sleep(0)
        for call in self._calls:
            call()
        self._calls = []
        for _ in range(5):
            await asyncio.sleep(0)

    def _open_all(self, _: str, batch: Iterable[Replica]) -> list[Opened]:
        self.said += [f"open {each.topic}" for each in batch]
        return []

    def _remove_all(
        self, doomed: Iterable[Replica], aside: Iterable[Replica], strays: Mapping[StrayKey, int]
    ) -> None:
        self.graces += strays.values()
        names = [each.topic for each in doomed]
        self.said.append(f"delete {len(names)} {min(names, default='')}".strip())
        self.said += [f"set {each.topic} aside" for each in aside]
        self.said += [f"delete {len(list(strays))} strays"] if strays else []


@pytest.fixture
async def directory() -> AsyncIterator[Directory]:
    made = Directory()
    running = asyncio.create_task(made.work.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_others_are_opened_while_a_large_topic_is_deleted(directory: Directory) -> None:
    for index in range(limits.REMOVE_BATCH + 1):
        directory.work.delete(Replica("large", index))  # type: ignore[arg-type]
    directory.work.open(Replica("other"))  # type: ignore[arg-type]
    for _ in range(3):
        await directory.step()
    assert directory.said == [f"delete {limits.REMOVE_BATCH} large", "open other", "delete 1 large"]
    assert directory.work.is_idle


async def test_what_has_the_name_of_something_that_is_there_waits_for_it(directory: Directory) -> None:
    for index in range(limits.REMOVE_BATCH):
        directory.work.delete(Replica("large", index))  # type: ignore[arg-type]
    directory.work.delete(Replica("again"))  # type: ignore[arg-type]
    directory.work.set_aside(Replica("aside"))  # type: ignore[arg-type]
    for topic in ("again", "aside"):
        directory.work.open(Replica(topic))  # type: ignore[arg-type]
    for _ in range(4):
        await directory.step()
    assert directory.said == [
        f"delete {limits.REMOVE_BATCH} large",
        "delete 1 again",
        "set aside aside",
        "open again",
        "open aside",
    ]


async def test_strays_are_deleted_bit_by_bit_too(directory: Directory) -> None:
    for index in range(limits.REMOVE_BATCH + 1):
        directory.work.delete_stray(StrayKey(uuid.UUID(int=1), index))
    for _ in range(2):
        await directory.step()
    assert directory.said == [
        "delete 0",
        f"delete {limits.REMOVE_BATCH} strays",
        "delete 0",
        "delete 1 strays",
    ]


async def test_a_stray_whose_topic_is_known_again_is_not_deleted_any_more(directory: Directory) -> None:
    """Its time was over; taken back, it may be set aside anew before its turn comes."""
    back = Replica("back", 2 * limits.REMOVE_BATCH)
    for index in range(back.index + 1):
        directory.work.delete_stray(StrayKey(uuid.UUID(bytes=back.topic_id), index))
    await directory.step()
    directory.work.open(back)  # type: ignore[arg-type]
    for _ in range(3):
        await directory.step()
    assert directory.said == [*2 * ["delete 0", f"delete {limits.REMOVE_BATCH} strays"], "open back"]


@pytest.mark.parametrize("graces", [(7, 0), (0, 7)])
async def test_a_stray_whose_topic_is_deleted_goes_at_once(
    directory: Directory, graces: tuple[int, int]
) -> None:
    """Also if its time was over by then: that may be another copy's."""
    for grace_ms in graces:
        directory.work.delete_stray(StrayKey(uuid.UUID(int=1), 0), grace_ms)
    await directory.step()
    assert directory.graces == [0]


async def test_who_stops_waits_for_no_more_than_what_is_being_deleted(directory: Directory) -> None:
    for index in range(10 * limits.REMOVE_BATCH):
        directory.work.delete(Replica("large", index))  # type: ignore[arg-type]
    await directory.step()
    assert len(directory.given) == 2, "the first are gone, and the next are under way"
