"""What a leader refuses that leads no more goes to who leads instead, in its order, unseen by the client."""

from __future__ import annotations

import asyncio

import pytest
from produce_connection import EITHER_WAY, Preparing, settle
from resent import NOT_LEADER, OUT_OF_ORDER, A, B, C, answer, leads, name_of

from barnabas.gateway import limits
from barnabas.gateway.clients.sequence_gaps import IN_FLIGHT_MAX
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult
from barnabas.metadata.image import topic_key

pytestmark = pytest.mark.usefixtures("time_jumps")


@EITHER_WAY
async def test_what_a_former_leader_refuses_goes_to_the_new_one_in_its_order(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    assert (len(run.sent), run.answers()) == (2, [])
    leads(run, 2, 2)
    await settle()
    assert name_of(run, 2) == (2, A), "the next one goes when this one is taken"
    await run.produce(C)
    assert len(run.sent) == 3, "what comes meanwhile waits"
    await answer(run, 2)
    assert name_of(run, 3) == (2, B)
    await answer(run, 3)
    assert name_of(run, 4) == (2, C)
    await answer(run, 4)
    assert run.answers() == [(0, 2), (0, 3), (0, 4)]


@EITHER_WAY
async def test_it_goes_at_once_where_the_new_leader_is_known_already(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    assert name_of(run, 1) == (2, A)


async def test_it_goes_also_where_the_gateway_is_about_to_stop() -> None:
    """What comes from now on is refused, for its client to ask where to go: that one was taken before."""
    run = Preparing(prepares=False)
    run.gateway.parts.sending_away.begin()
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    assert name_of(run, 1) == (2, A)
    await answer(run, 1)
    await run.produce(B)
    assert run.answers() == [(0, 1), (NOT_LEADER, -1)]


async def test_a_leader_that_does_not_know_yet_is_asked_again() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    assert len(run.sent) == 1
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert name_of(run, 1) == (1, A)
    await answer(run, 1)
    assert run.answers() == [(0, 1)]


@EITHER_WAY
async def test_what_its_new_leader_took_too_early_is_no_error_of_sequence(forwards: bool) -> None:
    """The first came a moment too early for it, the second did not."""
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, OUT_OF_ORDER)
    leads(run, 2, 2)
    await settle()
    await answer(run, 2)
    await answer(run, 3)
    assert ([name_of(run, 2), name_of(run, 3)], run.answers()) == ([(2, A), (2, B)], [(0, 2), (0, 3)])


async def test_an_error_of_sequence_of_its_own_is_told() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    leads(run, 2, 2)
    await settle()
    await answer(run, 1, OUT_OF_ORDER)
    assert run.answers() == [(OUT_OF_ORDER, -1)]


@EITHER_WAY
async def test_what_nobody_takes_is_refused_with_all_that_is_behind_it(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    leads(run, -1, 2)
    await asyncio.sleep(0.1)
    assert run.answers() == [(NOT_LEADER, -1)] * 2
    leads(run, 2, 2)
    await run.produce(C)
    assert run.answers()[2:] == [(NOT_LEADER, -1)], "what is behind them is refused until they come again"
    await run.produce(A)
    assert run.sent[-1] == (2, A)


async def test_what_is_still_under_way_to_the_former_leader_comes_back_first() -> None:
    run = Preparing(prepares=False)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    leads(run, 2, 2)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert len(run.sent) == 2, "nobody could keep the two in order"
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert name_of(run, 2) == (2, A)


@pytest.mark.parametrize("never_appended", [True, False])
async def test_what_has_no_sequence_is_sent_on_if_no_log_can_have_it(never_appended: bool) -> None:
    run = Preparing(prepares=False, is_idempotent=False)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER, never_appended=never_appended)
    if never_appended:
        await answer(run, 1)
    assert run.answers() == [(0, 1) if never_appended else (NOT_LEADER, -1)]


async def test_the_time_that_has_passed_counts() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    passed_ms = limits.RESEND_PAUSE_SECONDS * 1000
    assert A - 2 * passed_ms < run.sent[1][1] <= A - passed_ms + 1, "in whole milliseconds"


async def test_a_request_has_its_answer_in_its_own_time() -> None:
    run = Preparing(prepares=False)
    await run.produce(60)
    await answer(run, 0, NOT_LEADER)
    leads(run, -1, 2)
    await asyncio.sleep(0.2)
    assert run.answers() == [(NOT_LEADER, -1)]


@pytest.mark.parametrize(
    ("failure", "code"),
    [(OutcomeUnknown("it broke"), ErrorCode.request_timed_out), (Unreachable("it broke"), None)],
)
async def test_the_new_leader_fails(failure: Exception, code: ErrorCode | None) -> None:
    """What it may have taken the client is told of; what it has certainly not taken is sent once more."""
    run = Preparing(prepares=False)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    run.appends[run.sent[1]].set_exception(failure)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    if code is None:
        await answer(run, 2)
    assert run.answers() == [(0, 2) if code is None else (code, -1)]


async def test_what_comes_behind_a_refused_batch_is_refused_at_once() -> None:
    """Also where its leader has gone: the client knows where its forerunner is."""
    run = Preparing(prepares=False)
    await run.produce(A, B)
    await answer(run, 0, ErrorCode.kafka_storage_error)
    await answer(run, 1, NOT_LEADER)
    assert run.answers() == [(ErrorCode.kafka_storage_error, -1), (NOT_LEADER, -1)]
    leads(run, 2, 2)
    await asyncio.sleep(limits.RESEND_SECONDS_MAX)
    assert len(run.sent) == 2


async def test_what_is_out_of_order_behind_an_old_gap_is_not_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told what its forerunner was told, that nobody leads; also the last one for which the gap is kept."""
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    leads(run, -1, 2)
    await asyncio.sleep(limits.SEQUENCE_GAP_SECONDS + 1)
    leads(run, 1, 2)
    for number in range(1, IN_FLIGHT_MAX + 1):
        await run.produce(B)
        await answer(run, number, OUT_OF_ORDER)
        await asyncio.sleep(0.1)
    assert len(run.sent) == 1 + IN_FLIGHT_MAX
    assert run.answers() == [(NOT_LEADER, -1)] * (1 + IN_FLIGHT_MAX)


async def test_those_behind_do_not_wait_for_a_new_leader_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    await run.produce(B)
    assert len(run.sent) == 2
    await asyncio.sleep(0.1)
    assert name_of(run, 2) == (2, B)


async def test_of_a_lost_connection_nothing_is_sent_on() -> None:
    run = Preparing(prepares=False)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    await run.produce(C)
    run.connection.connection_lost(None)
    leads(run, 2, 2)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert (len(run.sent), run.budget.used_bytes, run.connection._running) == (2, 0, set())


async def test_a_partition_that_stays_is_not_sent_again_with_one_that_moved() -> None:
    run = Preparing(prepares=False)
    leads(run, 1, 1)
    await run.produce(A, partitions=(0, 1))
    parts = [
        PartitionAppendResult(base_offset=70),
        PartitionAppendResult(error_code=NOT_LEADER, base_offset=-1),
    ]
    leads(run, 1, 2)
    run.appends[run.sent[0]].set_result(AppendResult(partitions=parts))
    await settle()
    assert [(node, each) for node, each in run.partitions_sent][1:] == [(2, [1])]
    await answer(run, 1)
    assert run.answers() == [(0, 70)]


async def test_of_a_topic_that_is_deleted_meanwhile_its_producer_hears_at_once() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    run.gateway.metadata.apply(MetadataRecord(key=topic_key("orders")))
    await settle()
    assert [code for code, _ in run.answers()] == [ErrorCode.unknown_topic_or_partition]


@EITHER_WAY
async def test_a_result_for_too_many_partitions_holds_nothing_up(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    part = PartitionAppendResult(error_code=NOT_LEADER, base_offset=-1)
    run.appends[run.sent[0]].set_result(AppendResult(partitions=[part, part]))
    await settle()
    await run.produce(A)
    await answer(run, 1)
    assert run.answers() == [(ErrorCode.request_timed_out, -1), (0, 1)]


async def test_of_a_connection_that_is_closed_nothing_is_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other part of the request closes it."""
    monkeypatch.setattr(limits, "SEQUENCE_GAPS_MAX", 0)
    run = Preparing(prepares=False)
    await run.produce(A, partitions=(0, 1))
    await answer(run, 1, NOT_LEADER)
    await answer(run, 0, ErrorCode.kafka_storage_error)
    assert run.transport.closed
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert len(run.sent) == 2
