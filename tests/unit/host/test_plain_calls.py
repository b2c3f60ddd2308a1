"""Calls of the coordinator in a broker that need no task: the bytes of the general way, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from coordinator_node import Node, running
from gateway_harness import Gateway, decode_answer, request_frame
from log_in_memory import LogInMemory

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.plain_calls import LaterCall, PlainCalls
from barnabas.gateway.request_times import RequestTimes
from barnabas.host.local_calls import LocalCalls, LocalService
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

JOIN, HEARTBEAT, SYNC = 11, 12, 14
VERSIONS = {JOIN: range(10), HEARTBEAT: range(5), SYNC: range(6)}
CONTRACT = pb.DESCRIPTOR.services_by_name["GroupCoordinator"]


class Broker:
    """A gateway and a coordinator that meet by plain calls."""

    def __init__(self, log: LogInMemory) -> None:
        config = CoordinatorConfig(coordinator_id="c1", group_initial_rebalance_delay_ms=0)
        self.node = Node("c1", log, config)
        self.service: LocalService[Any] = LocalService()
        self.service.serving = self.node.calls
        self.gateway = Gateway()
        self.link = LocalCalls(CONTRACT, self.service)
        self.gateway.links.coordinators["c1"] = cast(Any, self.link)
        self.faults, self.metrics = Faults(), RequestMetrics()
        self.calls = PlainCalls(HANDLERS, self.gateway.parts, self.metrics, self.faults)

    def begin(self, api_key: int, version: int, **body: Any) -> bytes | LaterCall | None:
        frame = request_frame(api_key, version, {**COMMON[api_key], **body})
        return self.calls.answer(frame, 0.0, self.gateway.client)

    async def at_once(self, api_key: int, version: int, **body: Any) -> bytes:
        """The answer without a task, waited for."""
        begun = self.begin(api_key, version, **body)
        assert begun is not None
        return begun if isinstance(begun, bytes) else await Asked(begun).answer

    async def in_general(self, api_key: int, version: int, **body: Any) -> bytes:
        frame = request_frame(api_key, version, {**COMMON[api_key], **body})
        answer = await self.gateway.dispatcher.serve(frame, self.gateway.client)
        assert isinstance(answer, bytes)
        return answer

    @property
    def waiting(self) -> int:
        (runtime,) = self.node.coordinator.partitions.runtimes()
        return len(runtime._waiting._answers)


class Asked:
    """A wait, and what it brought."""

    def __init__(self, later: LaterCall) -> None:
        self.later = later
        self.times = RequestTimes()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        later.start(self.times, self.answer.set_result)


PROTOCOL = {"name": "range", "metadata": b"topics"}
COMMON: dict[int, dict[str, Any]] = {
    JOIN: {
        "group_id": "g",
        "session_timeout": 30_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [PROTOCOL],
    },
    HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": ""},
    SYNC: {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    },
}


@contextlib.asynccontextmanager
async def broker_with(log: LogInMemory) -> AsyncIterator[Broker]:
    broker = Broker(log)
    broker.node.see("c1")
    async with running(broker.node):
        yield broker


@pytest.fixture(params=[False, True], ids=["log elsewhere", "log here"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    log = LogInMemory()
    log.is_here = request.param
    async with broker_with(log) as made:
        yield made


async def joined(broker: Broker, members: int = 1) -> list[str]:
    """The ids of the members of a stable group, the leader's first."""
    leader = decode_answer(JOIN, 3, await broker.at_once(JOIN, 3)).member_id
    others = [broker.begin(JOIN, 3) for _ in range(members - 1)]
    waiting = [Asked(each) for each in others if isinstance(each, LaterCall)]
    assert len(waiting) == members - 1, "they wait for the first one"
    rejoined = decode_answer(JOIN, 3, await broker.at_once(JOIN, 3, member_id=leader))
    assert rejoined.leader == leader
    await broker.at_once(SYNC, 2, generation_id=rejoined.generation_id, member_id=leader)
    return [leader, *[decode_answer(JOIN, 3, await each.answer).member_id for each in waiting]]


async def test_the_answers_are_those_of_the_general_way_in_all_versions() -> None:
    """Two brokers, asked the same: one at once, one in general."""
    async with broker_with(LogInMemory()) as plain, broker_with(LogInMemory()) as general:
        both = (plain.at_once, general.in_general)
        for version in VERSIONS[JOIN]:
            group = f"g{version}"
            asked: dict[str, Any] = {"group_id": group}
            first, other = [await ask(JOIN, version, **asked) for ask in both]
            assert first == other
            answer = decode_answer(JOIN, version, first)
            asked["member_id"] = answer.member_id
            if answer.error_code:
                first, other = [await ask(JOIN, version, **asked) for ask in both]
                assert first == other
            for api_key in (HEARTBEAT, SYNC, HEARTBEAT):
                for each in VERSIONS[api_key]:
                    for wrong in ({}, {"generation_id": 9}, {"member_id": "nobody"}, {"group_id": ""}):
                        body = {**asked, **wrong}
                        first, other = [await ask(api_key, each, **body) for ask in both]
                        assert first == other, (api_key, each, wrong)


async def test_errors_are_counted_as_in_general(broker: Broker) -> None:
    await broker.at_once(HEARTBEAT, 4, member_id="nobody")
    begun = broker.begin(SYNC, 5, member_id="nobody")
    errors = dict(broker.metrics._errors)
    if isinstance(begun, LaterCall):
        asked = Asked(begun)
        await asked.answer
        assert asked.times.errors == [ErrorCode.unknown_member_id]
        assert asked.times.answered > 0
        assert (asked.times.api_key, asked.times.api_version) == (SYNC, 5)
    else:
        assert errors[SYNC, ErrorCode.unknown_member_id] == 1


async def test_a_heartbeat_is_answered_before_the_call_returns(broker: Broker) -> None:
    (member,) = await joined(broker)
    answer = broker.begin(HEARTBEAT, 4, member_id=member)
    assert isinstance(answer, bytes)
    assert decode_answer(HEARTBEAT, 4, answer).error_code == 0
    assert broker.waiting == 0


async def test_who_waits_for_others_has_the_answer_when_they_are_there(broker: Broker) -> None:
    leader, follower = await joined(broker, 2)
    rejoin = broker.begin(JOIN, 5, member_id=leader)
    assert isinstance(rejoin, LaterCall)
    asked = Asked(rejoin)
    beat = broker.begin(HEARTBEAT, 4, member_id=follower, generation_id=2)
    assert isinstance(beat, bytes)
    assert decode_answer(HEARTBEAT, 4, beat).error_code == ErrorCode.rebalance_in_progress
    assert not asked.answer.done()
    also = await broker.at_once(JOIN, 5, member_id=follower)
    assert (
        decode_answer(JOIN, 5, await asked.answer).generation_id == decode_answer(JOIN, 5, also).generation_id
    )
    assert asked.times.local_seconds < asked.times.answered


async def waits(broker: Broker) -> LaterCall:
    """A member that joins again, and waits for the other one."""
    leader, _ = await joined(broker, 2)
    begun = broker.begin(JOIN, 5, member_id=leader)
    assert isinstance(begun, LaterCall)
    return begun


async def test_a_client_that_goes_is_waited_for_by_nobody(broker: Broker) -> None:
    later = await waits(broker)
    asked = Asked(later)
    before = broker.waiting
    later.stop()
    await asyncio.sleep(0)
    assert broker.waiting == before - 1
    await asyncio.wait_for(broker.service.stop(5), 1)
    assert not asked.answer.done()


async def test_one_that_goes_as_the_answer_comes(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    later = await waits(broker)
    asked = Asked(later)
    (runtime,) = broker.node.coordinator.partitions.runtimes()
    runtime.close()  # refuses all who wait, who are told in the next turn
    later.stop()
    del later
    await asyncio.sleep(0)
    assert not asked.answer.done()
    assert caplog.text == ""


async def test_a_call_whose_time_is_over(broker: Broker) -> None:
    (member,) = await joined(broker)
    other = decode_answer(JOIN, 4, await broker.at_once(JOIN, 4)).member_id
    begun = broker.begin(JOIN, 5, member_id=other, rebalance_timeout=-20_000)
    assert isinstance(begun, LaterCall)
    asked = Asked(begun)
    broker.link._give_up(list(broker.link._begun))
    answer = decode_answer(JOIN, 5, await asked.answer)
    assert (answer.error_code, answer.member_id) == (ErrorCode.coordinator_not_available, other)
    await asyncio.sleep(0)
    assert broker.waiting == 0
    assert not broker.link._begun
    assert not len(broker.link._deadlines)
    assert member != other


async def test_the_time_of_a_call_is_looked_at(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.JOIN_GRACE_SECONDS", 0.01)
    await joined(broker)
    other = decode_answer(JOIN, 4, await broker.at_once(JOIN, 4)).member_id
    begun = broker.begin(JOIN, 5, member_id=other, rebalance_timeout=0)
    if isinstance(begun, LaterCall):
        answer = decode_answer(JOIN, 5, await asyncio.wait_for(Asked(begun).answer, 5))
        assert answer.error_code in (0, ErrorCode.coordinator_not_available)


async def test_a_link_that_closes_keeps_nobody_waiting(broker: Broker) -> None:
    asked = Asked(await waits(broker))
    await broker.link.close()
    answer = decode_answer(JOIN, 5, await asked.answer)
    assert answer.error_code == ErrorCode.coordinator_not_available


async def test_a_partition_that_moves_sends_to_the_other_coordinator(broker: Broker) -> None:
    asked = Asked(await waits(broker))
    broker.node.see("somebody else", 1)
    answer = decode_answer(JOIN, 5, await asked.answer)
    assert answer.error_code == ErrorCode.not_coordinator


async def test_a_stop_waits_for_who_waits(broker: Broker) -> None:
    asked = Asked(await waits(broker))
    stopping = asyncio.create_task(broker.service.stop(30))
    await asyncio.sleep(0.01)
    assert not stopping.done()
    (runtime,) = broker.node.coordinator.partitions.runtimes()
    runtime.close()
    await asked.answer
    await asyncio.wait_for(stopping, 1)


def refuse_all(broker: Broker) -> None:
    broker.service.serving = None


def inject(broker: Broker) -> None:
    broker.faults._rules = [cast(Any, object())]


def own_nothing(broker: Broker) -> None:
    broker.gateway.metadata.image = type(broker.gateway.metadata.image)()


@pytest.mark.parametrize(
    ("prepare", "frame"),
    [
        (refuse_all, b""),
        (own_nothing, b""),
        (lambda _: None, request_frame(HEARTBEAT, 4, COMMON[HEARTBEAT])[:-3]),
        (lambda _: None, b"\0\x0c\0\x63" + request_frame(HEARTBEAT, 4, COMMON[HEARTBEAT])[4:]),
        (lambda _: None, request_frame(SYNC, 5, {**COMMON[SYNC], "protocol_name": None})),
        (
            lambda _: None,
            request_frame(JOIN, 5, {**COMMON[JOIN], "protocols": [PROTOCOL | {"metadata": bytes(100_000)}]}),
        ),
    ],
    ids=["coordinator ends", "no coordinator", "cut off", "no such version", "refused here", "large"],
)
async def test_what_is_left_to_the_general_way(
    broker: Broker, prepare: Callable[[Broker], None], frame: bytes
) -> None:
    prepare(broker)
    frame = frame or request_frame(HEARTBEAT, 4, COMMON[HEARTBEAT])
    records = list(broker.node.coordinator.partitions.runtimes())
    assert broker.calls.answer(frame, 0.0, broker.gateway.client) is None
    assert all(not len(each._waiting._answers) for each in records)
    assert dict(broker.metrics._apis) == {}


async def test_a_partition_that_is_not_loaded_is_waited_for_in_general() -> None:
    log = LogInMemory()
    log.gate = asyncio.Event()
    broker = Broker(log)
    broker.node.see("c1")
    partitions = broker.node.coordinator.partitions
    assert broker.begin(HEARTBEAT, 4) is None
    assert broker.waiting == 0
    log.gate.set()
    for runtime in partitions.runtimes():
        runtime.close()


async def test_an_answer_of_many_members_is_encoded_in_turns() -> None:
    log = LogInMemory()
    log.is_here = True
    async with broker_with(log) as broker:
        ids = await joined(broker, 300)
        again = [broker.begin(JOIN, 5, member_id=member_id) for member_id in ids]
        waiting = [Asked(each) for each in again if isinstance(each, LaterCall)]
        answers = [decode_answer(JOIN, 5, await each.answer) for each in waiting]
        assert len(answers[0].members) == len(ids) == 300
        assert {len(each.members) for each in answers[1:]} == {0}
        assert waiting[0].times.answered > 0
        gone = broker.begin(JOIN, 5, member_id=ids[0])
        assert isinstance(gone, LaterCall)
        asked = Asked(gone)
        gone.stop()
        await asyncio.sleep(0.05)
        assert not asked.answer.done()


async def test_a_fault_of_ours_is_told_by_the_general_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    leader, follower = await joined(broker, 2)
    later = broker.begin(JOIN, 5, member_id=leader)
    assert isinstance(later, LaterCall)
    asked = Asked(later)
    monkeypatch.setattr("barnabas.gateway.plain_calls.encode_small", fails)
    assert broker.begin(HEARTBEAT, 4, member_id=follower, generation_id=2) is None
    (runtime,) = broker.node.coordinator.partitions.runtimes()
    runtime.close()
    assert await asked.answer is None
    assert "ZeroDivisionError" in caplog.text
