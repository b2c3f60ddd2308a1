"""Large requests: so many at a time as there is room for, in order, and nobody keeps the room for ever."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.decoded_requests import DecodedRequests, Size, TooLong, decoded_size, is_small
from barnabas.gateway.clients.waits import Wait

ROOM = 100 * limits.DECODED_AT_ONCE_BYTES


class Room:
    """Requests that are worked on until the test says so: `begun` in order."""

    def __init__(self, budget_bytes: int = ROOM * limits.DECODED_ONE_PART_IN) -> None:
        self.budget = ByteBudget(budget_bytes)
        self.decoded = DecodedRequests(self.budget)
        self.begun: list[str] = []
        self.answers: dict[str, asyncio.Future[str]] = {}
        self.waits: dict[str, Wait] = {}

    def come(self, name: str, size_bytes: int, waiting_bytes: int | None = None) -> asyncio.Task[str]:
        async def serve(wait: Wait) -> str:
            self.begun.append(name)
            self.waits[name] = wait
            self.answers[name] = asyncio.get_running_loop().create_future()
            return await self.answers[name]

        size = Size(size_bytes, size_bytes if waiting_bytes is None else waiting_bytes)
        return asyncio.create_task(self.decoded.serve(size, serve))

    @property
    def used_bytes(self) -> int:
        assert self.budget.used_bytes == self.decoded.used_bytes
        return self.budget.used_bytes


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_finds_no_room_waits_and_those_behind_it_stay_behind() -> None:
    room = Room()
    tasks = [
        room.come(name, int(size * ROOM)) for name, size in (("a", 0.6), ("b", 0.3), ("c", 0.2), ("d", 0.05))
    ]
    await settle()
    assert (room.begun, room.used_bytes) == (["a", "b"], int(0.9 * ROOM))
    room.answers["b"].set_result("of b")
    await settle()
    assert (room.begun, room.used_bytes) == (["a", "b", "c", "d"], int(0.85 * ROOM))
    for name in "acd":
        room.answers[name].set_result(f"of {name}")
    assert await asyncio.gather(*tasks) == ["of a", "of b", "of c", "of d"]
    assert room.used_bytes == 0


async def test_what_is_larger_than_all_the_room_goes_alone() -> None:
    room = Room()
    for name, size in (("a", ROOM // 10), ("b", 5 * ROOM), ("c", ROOM // 10)):
        room.come(name, size)
    await settle()
    assert room.begun == ["a"]
    room.answers["a"].set_result("")
    await settle()
    assert (room.begun, room.used_bytes) == (["a", "b"], 5 * ROOM)
    room.answers["b"].set_result("")
    await settle()
    assert room.begun == ["a", "b", "c"]


@pytest.mark.parametrize("budget_bytes", [0, -1])
async def test_no_limit_is_none(budget_bytes: int) -> None:
    room = Room(budget_bytes)
    for name in "abc":
        room.come(name, 1 << 40)
    await settle()
    assert room.begun == ["a", "b", "c"]


async def test_a_failure_gives_its_room_back() -> None:
    room = Room()
    failing, waiting = room.come("a", ROOM), room.come("b", ROOM)
    await settle()
    room.answers["a"].set_exception(ValueError("of a"))
    with pytest.raises(ValueError, match="of a"):
        await failing
    await settle()
    assert (room.begun, room.used_bytes) == (["a", "b"], ROOM)
    room.answers["b"].set_exception(TimeoutError("of b's own"))
    with pytest.raises(TimeoutError, match="of b's own"):
        await waiting
    assert room.used_bytes == 0


async def test_who_keeps_others_waiting_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODED_SECONDS_MAX", 0.02)
    room = Room()
    long = room.come("long", ROOM)
    await asyncio.sleep(0.05)
    assert not long.done(), "nobody waits"
    waiting, last = room.come("waiting", ROOM // 2), room.come("last", ROOM // 2)
    with pytest.raises(TooLong):
        await asyncio.wait_for(long, 5)
    await settle()
    assert room.begun == ["long", "waiting", "last"]
    await asyncio.sleep(0.05)
    assert not waiting.done(), "nobody waits any more"
    room.come("another", ROOM)
    for each in (waiting, last):
        with pytest.raises(TooLong):
            await asyncio.wait_for(each, 5)
    await settle()
    assert (room.begun[-1], room.used_bytes) == ("another", ROOM)


@given(st.data())
def test_whoever_leaves_when_the_room_is_given_back(data: st.DataObject) -> None:
    sizes = st.integers(limits.DECODED_AT_ONCE_BYTES + 1, 2 * ROOM)

    async def run() -> None:
        room = Room()
        tasks: list[asyncio.Task[str]] = []
        for step in range(data.draw(st.integers(1, 20))):
            match data.draw(st.sampled_from(["come", "leave", "answer", "pass"])):
                case "come":
                    tasks.append(room.come(str(step), data.draw(sizes)))
                case "leave" if tasks:
                    data.draw(st.sampled_from(tasks)).cancel()
                case "answer" if under_way := [each for each in room.answers.values() if not each.done()]:
                    data.draw(st.sampled_from(under_way)).set_result("")
                case _:
                    await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            await settle()
            for answer in room.answers.values():
                if not answer.done():
                    answer.set_result("")
        assert (room.used_bytes, len(room.decoded._waiting), room.decoded._under_way) == (0, 0, {})

    asyncio.run(run())


async def test_what_is_not_very_large_counts_and_waits_for_nobody() -> None:
    room = Room()
    room.come("large", ROOM)
    waiting = room.come("waiting", ROOM)
    task = room.come("other", limits.DECODED_AT_ONCE_BYTES)
    await settle()
    assert room.begun == ["large", "other"]
    assert room.budget.used_bytes == ROOM + limits.DECODED_AT_ONCE_BYTES
    room.answers["other"].set_exception(ValueError("of its own"))
    with pytest.raises(ValueError, match="of its own"):
        await task
    assert room.used_bytes == ROOM
    waiting.cancel()
    room.answers["large"].set_result("")  # before the other has noticed
    await settle()
    assert (room.begun, room.used_bytes) == (["large", "other"], 0)


def test_small_requests_are_not_counted_nor_are_most_long_polls() -> None:
    metadata, fetch = 3, 1
    assert is_small(metadata, limits.DECODED_BYTES_FREE)
    assert not is_small(metadata, limits.DECODED_BYTES_FREE + 1)
    assert is_small(fetch, limits.DECODED_AT_ONCE_BYTES)
    assert not is_small(fetch, limits.DECODED_AT_ONCE_BYTES + 1)


async def test_who_waits_for_other_services_counts_for_less() -> None:
    room = Room()
    task = room.come("a", 100_000, 30_000)
    await settle()
    used = [room.budget.used_bytes]
    with room.waits["a"]:
        used.append(room.budget.used_bytes)
        with room.waits["a"]:  # two coordinators are asked
            used.append(room.budget.used_bytes)
        used.append(room.budget.used_bytes)
    used.append(room.budget.used_bytes)
    assert used == [100_000, 30_000, 30_000, 30_000, 100_000]
    room.answers["a"].set_result("")
    await task
    assert room.budget.used_bytes == 0


async def test_room_that_a_wait_gives_back_is_told() -> None:
    told = []
    room = Room()
    room.budget.bytes_max, room.budget.on_room = 90_000, lambda: told.append(room.budget.used_bytes)
    room.come("a", 100_000, 30_000)
    await settle()
    with room.waits["a"]:
        assert told == [30_000]


async def test_long_polls_are_hurried_where_others_wait_for_their_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DECODED_LONG_POLL_SECONDS_MAX", 0.02)
    room, hurried = Room(), list[str]()
    for name in "ab":
        room.come(name, ROOM // 2)
    await settle()
    room.waits["a"].on_hurry(lambda: hurried.append("a"))
    room.waits["b"].on_hurry(lambda: hurried.append("b"))
    room.waits["b"].on_hurry(None)  # it is answered
    await asyncio.sleep(0.05)
    assert hurried == [], "nobody waits"
    leaving = room.come("c", ROOM // 2)
    await asyncio.sleep(0.05)
    room.come("d", ROOM // 2)
    room.come("e", ROOM // 2)
    await asyncio.sleep(0.05)
    assert hurried == ["a"], "once"
    leaving.cancel()
    room.answers["a"].set_result("")
    await settle()
    assert room.begun == ["a", "b", "d"]
    await asyncio.sleep(0.05)
    room.waits["d"].on_hurry(lambda: hurried.append("d"))
    assert hurried == ["a", "d"], "its time was over before it began to wait"


def test_what_waits_is_taken_for_less_where_its_answer_is_made_at_once() -> None:
    commit, items = 8, limits.ROWS_AT_A_TIME
    size = decoded_size(commit, 1_000, items)
    assert size.bytes - size.waiting_bytes == items * (
        limits.DECODED_ITEM_BYTES - limits.DECODED_WAITING_ITEM_BYTES
    )
    size = decoded_size(commit, 1_000, items + 1)
    assert size.bytes == size.waiting_bytes


def test_records_are_no_text() -> None:
    produce, fetch = 0, 1
    assert decoded_size(produce, 1 << 20, 3).bytes == 3 * limits.DECODED_ITEM_BYTES
    assert decoded_size(produce, 1 << 20, 3).bytes <= limits.DECODED_BYTES_FREE
    assert decoded_size(fetch, 1_000, 3).bytes == 3 * limits.DECODED_ITEM_BYTES + 4_000
