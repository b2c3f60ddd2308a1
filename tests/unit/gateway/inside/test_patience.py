"""A coordinator that has gone is waited for; what may have been carried out is sent again where that is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from gateway_harness import FakeLink, Gateway, coordinator_record, small_cluster, topic_records

from barnabas.gateway import limits
from barnabas.gateway.clients.waits import Wait
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    NotSentInTime,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.metadata_pb2 import FeatureRecord, MetadataRecord
from barnabas.messages.transactions_pb2 import EndTxnResponse
from barnabas.metadata.features import GROUP_VERSION
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, feature_key
from barnabas.wire.requests import RequestHeader

pytestmark = pytest.mark.usefixtures("time_jumps")

OFFSET_COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC, OFFSET_DELETE, CONSUMER_HEARTBEAT = 8, 11, 12, 13, 14, 47, 68
INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 22, 26, 28
OFFSET_FETCH, DESCRIBE, DESCRIBE_TRANSACTIONS = 9, 15, 65
NOT_AVAILABLE = ErrorCode.coordinator_not_available

IN_GROUP = {"group_id": "g", "member_id": "m"}
COMMIT = {
    **IN_GROUP,
    "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 5}]}],
}

SYNCS = {**IN_GROUP, "protocol_type": "consumer", "protocol_name": "range"}
ENDS = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True}


def beat(epoch: int) -> dict[str, Any]:
    return {**IN_GROUP, "member_epoch": epoch}


class Failing:
    """Answers after so many failures."""

    def __init__(self, error: Callable[[str], LinkError], failures: int, answer: Any) -> None:
        self.error, self.failures, self.answer, self.asked = error, failures, answer, 0

    def __call__(self, _: Any) -> Any:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error("gone")
        return self.answer


async def heartbeat_code(gateway: Gateway) -> int:
    return int((await gateway.ask(HEARTBEAT, 4, IN_GROUP)).error_code)


@pytest.mark.parametrize("error", [Unreachable, ConnectionRefused])
async def test_one_that_cannot_be_reached_is_asked_until_it_is_back(
    error: Callable[[str], LinkError],
) -> None:
    gateway = Gateway()
    gateway.coordinator.answers["Heartbeat"] = back = Failing(error, 5, pb.HeartbeatResponse())
    assert await heartbeat_code(gateway) == 0
    assert back.asked == 6


async def test_it_is_awaited_for_so_long_and_no_longer() -> None:
    gateway, loop = Gateway(), asyncio.get_running_loop()
    gateway.coordinator.answers["Heartbeat"] = never = Failing(Unreachable, 10**6, None)
    began = loop.time()
    assert await heartbeat_code(gateway) == NOT_AVAILABLE
    awaited = limits.COORDINATOR_AWAITED_SECONDS
    assert awaited <= loop.time() - began < awaited + limits.COORDINATOR_PAUSE_SECONDS_MAX + 0.01
    assert never.asked <= 9, "pauses become longer"


async def test_the_time_runs_from_when_it_went() -> None:
    gateway = Gateway()

    async def waits_and_breaks(_: Any) -> Any:
        await asyncio.sleep(10 * limits.COORDINATOR_AWAITED_SECONDS)
        gateway.coordinator.answers["SyncGroup"] = lambda _: pb.SyncGroupResponse(assignment=b"mine")
        raise OutcomeUnknown("the stream broke")

    gateway.coordinator.answers["SyncGroup"] = waits_and_breaks
    assert (await gateway.ask(SYNC, 5, SYNCS)).assignment == b"mine"


async def test_it_runs_for_all_requests_of_an_outage_and_anew_after_it() -> None:
    gateway, loop = Gateway(), asyncio.get_running_loop()
    gateway.coordinator.answers["Heartbeat"] = never = Failing(Unreachable, 10**6, pb.HeartbeatResponse())

    async def seconds_of(code: int) -> float:
        began = loop.time()
        assert await heartbeat_code(gateway) == code
        return loop.time() - began

    assert await seconds_of(NOT_AVAILABLE) >= limits.COORDINATOR_AWAITED_SECONDS
    asked = never.asked
    assert await seconds_of(NOT_AVAILABLE) < 0.01
    assert never.asked == asked + 1
    never.failures = 0
    assert await seconds_of(0) < 0.01
    never.failures = 10**6
    assert await seconds_of(NOT_AVAILABLE) >= limits.COORDINATOR_AWAITED_SECONDS
    await asyncio.sleep(limits.COORDINATOR_AWAITED_SECONDS * 1.1)
    assert await seconds_of(NOT_AVAILABLE) >= limits.COORDINATOR_AWAITED_SECONDS, (
        "nobody saw the outage before"
    )


async def test_one_partition_is_not_the_other() -> None:
    gateway = Gateway()
    gateway.metadata.apply(
        *topic_records(GROUP_METADATA_TOPIC, [1, 1], coordinator_id="c1"),
        *topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1"),
    )
    other = next(
        name for name in map(str, range(99)) if partition_for_group(name, 2) != partition_for_group("g", 2)
    )
    gateway.coordinator.answers["Heartbeat"] = never = Failing(Unreachable, 10**6, None)
    assert await heartbeat_code(gateway) == NOT_AVAILABLE
    asked = never.asked
    assert (await gateway.ask(HEARTBEAT, 4, {**IN_GROUP, "group_id": other})).error_code == NOT_AVAILABLE
    assert never.asked > asked + 1
    gateway.transactions.answers["EndTxn"] = back = Failing(Unreachable, 3, EndTxnResponse())
    assert (await gateway.ask(END_TXN, 3, ENDS)).error_code == 0
    assert back.asked == 4


@pytest.mark.parametrize("error", [Unreachable, OutcomeUnknown])
async def test_no_request_waits_longer_because_others_are_answered(error: Callable[[str], LinkError]) -> None:
    """Something may be wrong with it alone."""
    gateway, loop = Gateway(), asyncio.get_running_loop()
    gateway.coordinator.answers["Heartbeat"] = lambda _: pb.HeartbeatResponse()
    gateway.coordinator.answers["SyncGroup"] = Failing(error, 10**6, None)
    began = loop.time()
    syncs = asyncio.create_task(gateway.ask(SYNC, 5, SYNCS))
    while not syncs.done() and loop.time() - began < 100:
        await asyncio.sleep(limits.COORDINATOR_AWAITED_SECONDS / 8)
        assert await heartbeat_code(gateway) == 0
    assert (await syncs).error_code == NOT_AVAILABLE
    assert loop.time() - began < limits.COORDINATOR_AWAITED_SECONDS * 1.5


@pytest.mark.parametrize(
    ("error", "seconds", "calls"),
    [
        (OutcomeUnknown, limits.COORDINATOR_AWAITED_SECONDS * 1.1, 2),
        (OutcomeUnknown, limits.COORDINATOR_KEPT_SECONDS * 1.1, limits.COORDINATOR_OUTAGES_MAX + 1),
        (Unreachable, limits.COORDINATOR_KEPT_SECONDS * 1.1, 2),
    ],
)
async def test_nor_because_it_fails_late_each_time(
    error: Callable[[str], LinkError], seconds: float, calls: int
) -> None:
    """A coordinator that is silent is noticed late, and so is one that nobody can connect to."""
    gateway, asked = Gateway(), 0

    async def breaks(_: Any) -> Any:
        nonlocal asked
        asked += 1
        assert asked <= calls, "it is given up by then"
        await asyncio.sleep(seconds)
        raise error("the stream broke")

    gateway.coordinator.answers["SyncGroup"] = breaks
    assert (await gateway.ask(SYNC, 5, SYNCS)).error_code == NOT_AVAILABLE
    assert asked == calls


async def test_who_waited_at_one_that_then_went_waits_for_the_next() -> None:
    """A generation takes minutes to begin, and coordinators are restarted one after the other."""
    gateway, asked = Gateway(), 0

    async def goes_twice(_: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            return pb.SyncGroupResponse(assignment=b"mine")
        await asyncio.sleep(60)
        raise OutcomeUnknown("it went")

    gateway.coordinator.answers["SyncGroup"] = goes_twice
    assert (await gateway.ask(SYNC, 5, SYNCS)).assignment == b"mine"


async def test_while_it_waits_the_request_says_so() -> None:
    """A large one holds less then; and it may be hurried."""
    gateway, waits = Gateway(), 0

    class Counted(Wait):
        def __enter__(self) -> None:
            nonlocal waits
            waits += 1

        def __exit__(self, *_: object) -> None:
            nonlocal waits
            waits -= 1

    def fails(_: Any) -> Any:
        assert waits == 1
        raise Unreachable("gone")

    gateway.coordinator.answers["Heartbeat"] = fails
    header = RequestHeader(HEARTBEAT, 4, 1, "test", 0)
    request = Request(header, None, gateway.client, gateway.parts, wait=Counted())
    code = await GROUPS.ask(
        request, "g", lambda coordinator: coordinator.Heartbeat(pb.HeartbeatRequest()), lambda code: code
    )
    assert (code, waits) == (NOT_AVAILABLE, 0)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (OFFSET_FETCH, 7, {"group_id": "g", "topics": None}),
        (DESCRIBE, 5, {"groups": ["g"]}),
        (DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}),
    ],
)
async def test_who_asks_here_again_by_itself_and_who_asks_for_many_do_not_wait(
    api_key: int, version: int, body: dict[str, Any]
) -> None:
    gateway, loop = Gateway(), asyncio.get_running_loop()
    gateway.metadata.apply(*topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1"))
    for link, method in ((gateway.coordinator, "OffsetFetch"), (gateway.coordinator, "DescribeGroups")):
        link.answers[method] = Failing(Unreachable, 10**6, None)
    gateway.transactions.answers["DescribeTransactions"] = Failing(Unreachable, 10**6, None)
    began = loop.time()
    await gateway.ask(api_key, version, body)
    assert loop.time() - began < 0.01


async def test_a_gateway_that_is_about_to_stop_waits_no_longer() -> None:
    gateway, loop = Gateway(), asyncio.get_running_loop()
    gateway.coordinator.answers["Heartbeat"] = Failing(Unreachable, 10**6, None)
    began = loop.time()
    asked = asyncio.create_task(heartbeat_code(gateway))
    await asyncio.sleep(limits.COORDINATOR_AWAITED_SECONDS / 2)
    gateway.parts.patience.end()
    assert await asked == NOT_AVAILABLE
    assert loop.time() - began < limits.COORDINATOR_AWAITED_SECONDS * 3 / 4


@pytest.mark.parametrize("error", [DeadlinePassed, NotSentInTime, partial(Refused, Refusal.NOT_REGISTERED)])
async def test_one_that_let_the_time_pass_or_refuses_is_not_asked_again(
    error: Callable[[str], LinkError],
) -> None:
    gateway = Gateway()
    gateway.coordinator.answers["Heartbeat"] = silent = Failing(error, 1, pb.HeartbeatResponse())
    assert await heartbeat_code(gateway) == NOT_AVAILABLE
    assert silent.asked == 1


@pytest.mark.parametrize(
    ("api_key", "version", "body", "is_repeated"),
    [
        (OFFSET_COMMIT, 9, COMMIT, True),
        (HEARTBEAT, 4, IN_GROUP, True),
        (SYNC, 5, SYNCS, True),
        (JOIN, 9, {**IN_GROUP, "session_timeout": 10_000}, True),
        (JOIN, 9, {"group_id": "g", "session_timeout": 10_000}, False),
        (LEAVE, 5, {"group_id": "g", "members": [{"member_id": "m"}]}, False),
        (OFFSET_DELETE, 0, {"group_id": "g"}, False),
        (TXN_OFFSET_COMMIT, 3, {**COMMIT, "transactional_id": "t"}, False),
        (CONSUMER_HEARTBEAT, 1, beat(3), False),
        (CONSUMER_HEARTBEAT, 1, beat(0), False),
        (CONSUMER_HEARTBEAT, 1, beat(-1), False),
    ],
)
async def test_what_may_have_been_done_is_done_again_only_where_that_changes_nothing(
    api_key: int, version: int, body: dict[str, Any], is_repeated: bool
) -> None:
    """A consumer's heartbeat is answered with what it changed: the same again would be told that nothing changed."""
    gateway = Gateway()
    feature = FeatureRecord(name=GROUP_VERSION, level=1)
    gateway.metadata.apply(MetadataRecord(key=feature_key(GROUP_VERSION), feature=feature))
    await gateway.ask(api_key, version, body)  # its outcome is unknown, each time
    assert gateway.coordinator.calls
    assert (len(gateway.coordinator.calls) > 1) == is_repeated


async def test_while_nobody_owns_the_group_the_next_owner_is_awaited() -> None:
    records = [record for record in small_cluster() if not record.HasField("coordinator")]
    gateway = Gateway(records)
    gateway.coordinator.answers["Heartbeat"] = lambda _: pb.HeartbeatResponse()
    asked = asyncio.create_task(heartbeat_code(gateway))
    await asyncio.sleep(limits.COORDINATOR_AWAITED_SECONDS / 2)
    assert not asked.done()
    gateway.metadata.apply(coordinator_record("c1"))
    assert await asked == 0


async def test_who_has_its_place_by_then_is_asked() -> None:
    gateway = Gateway()
    gateway.coordinator.answers["Heartbeat"] = gone = Failing(Unreachable, 10**6, None)
    gateway.links.coordinators["c2"] = FakeLink(Heartbeat=lambda _: pb.HeartbeatResponse())
    asked = asyncio.create_task(heartbeat_code(gateway))
    await asyncio.sleep(limits.COORDINATOR_AWAITED_SECONDS / 2)
    before = gone.asked
    gateway.metadata.apply(
        coordinator_record("c2"), *topic_records(GROUP_METADATA_TOPIC, [1], coordinator_id="c2")
    )
    assert await asked == 0
    assert gone.asked == before


@pytest.mark.parametrize("api_key", [HEARTBEAT, INIT_PRODUCER_ID])
async def test_without_the_topic_there_is_nothing_to_wait_for(api_key: int) -> None:
    no_topic = [each for each in small_cluster() if each.topic.name != GROUP_METADATA_TOPIC]
    gateway, loop = Gateway(no_topic), asyncio.get_running_loop()
    began = loop.time()
    body = IN_GROUP if api_key == HEARTBEAT else {"transactional_id": "t", "transaction_timeout": 1000}
    assert (await gateway.ask(api_key, 4, body)).error_code == NOT_AVAILABLE
    assert loop.time() - began < limits.COORDINATOR_PAUSE_SECONDS_MIN


@pytest.mark.parametrize(("error", "asked"), [(Unreachable, 3), (OutcomeUnknown, 1)])
async def test_transactions(error: Callable[[str], LinkError], asked: int) -> None:
    gateway = Gateway([*small_cluster(), *topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1")])
    gateway.transactions.answers["EndTxn"] = ends = Failing(error, 2, EndTxnResponse())
    answer = await gateway.ask(END_TXN, 3, ENDS)
    assert (answer.error_code, ends.asked) == (0 if asked == 3 else NOT_AVAILABLE, asked)
