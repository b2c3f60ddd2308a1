"""What is sent on keeps its order, whenever it comes back and whenever its time is over."""

from __future__ import annotations

import asyncio

import pytest
from produce_connection import EITHER_WAY, Preparing, settle
from resent import NOT_LEADER, OUT_OF_ORDER, A, B, C, D, answer, leads, name_of

from barnabas.gateway import limits
from barnabas.gateway.handlers import produce
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult

pytestmark = pytest.mark.usefixtures("time_jumps")


async def test_who_runs_out_of_time_behind_another_one_is_told() -> None:
    run = Preparing(prepares=False)
    await run.produce(A, 60)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    leads(run, -1, 2)
    await asyncio.sleep(0.7)
    assert run.answers() == [(NOT_LEADER, -1)] * 2


@EITHER_WAY
@pytest.mark.parametrize("knows", ["before", "after"])
async def test_what_was_sent_first_and_comes_back_last_goes_first(forwards: bool, knows: str) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    if knows == "before":
        leads(run, 2, 2)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 1.5)
    if knows == "after":
        leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    assert [name_of(run, each) for each in range(2, len(run.sent))] == [(2, A)]
    await answer(run, 2)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    await answer(run, 3)
    assert run.answers() == [(0, 2), (0, 3)]


async def test_nothing_is_asked_again_while_what_came_before_it_is_under_way() -> None:
    """The same node leads on: it would find a gap in the sequences."""
    run = Preparing(prepares=False)
    await run.produce(A, B)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    assert len(run.sent) == 2


@EITHER_WAY
async def test_nothing_overtakes_what_is_given_up(forwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    appends = run.gateway.node(2).appends
    appends.send = run._stream(2)
    monkeypatch.setattr(appends, "has_room", lambda _: False)
    leads(run, 2, 2)
    began = asyncio.get_running_loop().time()
    await answer(run, 0, NOT_LEADER)
    await run.produce(C)
    asyncio.get_running_loop().call_at(
        began + 0.045, monkeypatch.setattr, appends, "has_room", lambda _: True
    )
    await asyncio.sleep(0.1)
    sent = [name_of(run, each) for each in range(1, len(run.sent))]
    assert sent in ([], [(2, A)], [(2, A), (2, C)])


@EITHER_WAY
@pytest.mark.parametrize("how", ["refused", "unreachable"])
async def test_what_comes_back_when_its_time_is_over_opens_its_gap_at_once(
    forwards: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(0.1)
    leads(run, 1, 2)
    if how == "refused":
        part = PartitionAppendResult(error_code=NOT_LEADER, base_offset=-1)
        run.appends[run.sent[1]].set_result(AppendResult(partitions=[part]))
    else:
        run.appends[run.sent[1]].set_exception(Unreachable("it broke"))
    run.receive(D)
    await settle()
    await asyncio.sleep(0.03)
    assert len(run.sent) == 2
    assert run.answers() == [(NOT_LEADER, -1)] * 2


@EITHER_WAY
@pytest.mark.parametrize("heard", ["before", "after"])
async def test_what_is_under_way_behind_a_failed_one_is_not_sent_on_before_that(
    forwards: bool, heard: str
) -> None:
    """The failed one is sent again when the other has not come back yet, and who leads by then may know neither."""
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    if heard == "before":
        leads(run, 2, 2)
    await answer(run, 0, ErrorCode.request_timed_out)
    await run.produce(A)
    if heard == "after":
        leads(run, 2, 2)
        await answer(run, 2, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    last = len(run.sent) - 1
    on_second_node = [name_of(run, number) for number, (node, _) in enumerate(run.sent) if node == 2]
    assert on_second_node == [(2, A)]
    await answer(run, last)
    await run.produce(B)
    await answer(run, last + 1)
    assert [name_of(run, last + 1), run.answers()[-1]] == [(2, B), (0, last + 1)]
    assert run.answers()[:3] == [(ErrorCode.request_timed_out, -1), (NOT_LEADER, -1), (0, last)]


async def test_what_is_under_way_behind_one_that_is_given_up_is_not_sent_on_before_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False)
    leads(run, 1, 1)
    await run.produce(A, B, partitions=(0, 1))
    taken = PartitionAppendResult(base_offset=1)  # or the client would send one at a time from now on
    refused = PartitionAppendResult(error_code=NOT_LEADER, base_offset=-1)
    leads(run, -1, 1)
    run.appends[run.sent[0]].set_result(AppendResult(partitions=[refused, taken]))
    await asyncio.sleep(0.1)
    leads(run, 2, 1)
    await run.produce(A)
    run.appends[run.sent[1]].set_result(AppendResult(partitions=[refused, taken]))
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS)
    assert [name_of(run, each) for each in range(2, len(run.sent))] == [(2, A)]
    await answer(run, 2)
    assert run.answers() == [(NOT_LEADER, -1), (NOT_LEADER, -1), (0, 2)]


async def test_what_is_under_way_behind_one_whose_topic_is_gone_is_not_sent_on_before_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Preparing(prepares=False)
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    with monkeypatch.context() as patch:
        patch.setattr(produce, "leader_of", lambda *_: ErrorCode.unknown_topic_or_partition)
        await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 1, NOT_LEADER)
    await answer(run, 2, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    assert [name_of(run, each) for each in range(2, len(run.sent))] == [(1, A)]


async def test_other_news_do_not_have_it_sent_again() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    for _ in range(20):
        leads(run, 1, 2)
        await settle()
        if len(run.sent) > 1:
            await answer(run, len(run.sent) - 1, NOT_LEADER)
    assert len(run.sent) == 1


async def test_what_waited_has_that_much_less_time() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    await answer(run, 0, NOT_LEADER)
    leads(run, -1, 2)
    await run.produce(C)
    await asyncio.sleep(0.2)
    leads(run, 2, 2)
    await settle()
    await answer(run, 1)
    assert name_of(run, 2) == (2, C)
    assert run.sent[2][1] <= C - 190


@EITHER_WAY
async def test_what_comes_between_the_news_and_the_refusal_is_sent_on_behind_it(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    leads(run, 2, 2)
    await run.produce(B, C)
    assert run.sent == [(1, A)]
    await answer(run, 0, NOT_LEADER)
    for number, name in enumerate((A, B, C), start=1):
        await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
        assert name_of(run, number) == (2, name)
        await answer(run, number)
    assert run.answers() == [(0, 1), (0, 2), (0, 3)]


@EITHER_WAY
async def test_what_is_sent_on_does_not_fill_a_gap_behind_it(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes back first, and so its time is over first."""
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.2)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    leads(run, -1, 2)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(0.15)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(0.1)
    leads(run, 2, 2)
    await settle()
    await answer(run, 2)
    await run.produce(C)
    assert [name_of(run, each) for each in range(2, len(run.sent))] == [(2, A)]
    assert run.answers() == [(0, 2), (NOT_LEADER, -1), (NOT_LEADER, -1)]


@EITHER_WAY
@pytest.mark.parametrize("heard", ["first", "last"])
async def test_what_came_too_early_is_sent_on_whenever_that_is_heard(forwards: bool, heard: str) -> None:
    """Its answer may wait for another partition, or that of what came before it."""
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    if heard == "first":
        await answer(run, 1, OUT_OF_ORDER)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    await answer(run, 2)
    if heard == "last":
        await answer(run, 1, OUT_OF_ORDER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 2)
    await answer(run, 3)
    assert [name_of(run, 2), name_of(run, 3)] == [(1, A), (1, B)]
    assert run.answers() == [(0, 2), (0, 3)]


@EITHER_WAY
async def test_an_error_of_sequence_is_told_where_what_came_before_it_was_taken(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A, B)
    await answer(run, 1, OUT_OF_ORDER)
    await answer(run, 0)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    await answer(run, 2, OUT_OF_ORDER)
    assert run.answers() == [(0, 0), (OUT_OF_ORDER, -1)]


async def test_what_has_no_time_left_goes_to_nobody() -> None:
    """It would be written, and its producer told that its time was over."""
    run = Preparing(prepares=False, is_idempotent=False)
    await run.produce(A)
    leads(run, -1, 2)
    await answer(run, 0, NOT_LEADER, never_appended=True)
    await run.produce(60, partitions=(1,))
    await asyncio.sleep(0.1)
    leads(run, 2, 2)
    await settle()
    await answer(run, 1)
    assert run.sent[2:] == []
    assert run.answers() == [(0, 1), (NOT_LEADER, -1)]


async def test_what_is_behind_it_does_not_get_past_it() -> None:
    run = Preparing(prepares=False)
    await run.produce(A)
    leads(run, -1, 2)
    await answer(run, 0, NOT_LEADER)
    await run.produce(60, C, partitions=(1,))
    await asyncio.sleep(0.1)
    leads(run, 2, 2)
    await settle()
    await answer(run, 1)
    assert run.sent[2:] == []
    assert run.answers() == [(0, 1), (NOT_LEADER, -1), (NOT_LEADER, -1)]


@EITHER_WAY
async def test_what_came_before_one_that_others_no_longer_wait_for_is_no_error_of_sequence(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new leader refused the first as it did not lead yet, took the second for the next, and says that first."""
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(A)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    await run.produce(B)
    await asyncio.sleep(0.1)
    assert [name_of(run, each) for each in (1, 2)] == [(2, A), (2, B)]
    await answer(run, 2, OUT_OF_ORDER)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(0.1)
    assert run.answers() == [(NOT_LEADER, -1)] * 2


async def test_what_was_sent_on_too_early_is_no_error_of_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is not waited for any longer when the second is sent on behind it."""
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.1)
    run = Preparing(prepares=False)
    await run.produce(A, B)
    leads(run, 2, 2)
    await answer(run, 0, NOT_LEADER)
    await asyncio.sleep(0.05)
    await answer(run, 1, NOT_LEADER)
    await asyncio.sleep(0.07)
    assert [name_of(run, each) for each in (2, 3)] == [(2, A), (2, B)]
    await answer(run, 3, OUT_OF_ORDER)
    await answer(run, 2, NOT_LEADER)
    await asyncio.sleep(0.1)
    assert run.answers() == [(NOT_LEADER, -1)] * 2


async def test_each_part_of_a_request_may_have_come_too_early() -> None:
    run = Preparing(prepares=False)
    leads(run, 1, 1)
    await run.produce(A, B, partitions=(0, 1))
    refused = [PartitionAppendResult(error_code=code, base_offset=-1) for code in (NOT_LEADER, OUT_OF_ORDER)]
    first = [PartitionAppendResult(error_code=NOT_LEADER, base_offset=-1) for _ in range(2)]
    run.appends[run.sent[0]].set_result(AppendResult(partitions=first))
    await settle()
    run.appends[run.sent[1]].set_result(AppendResult(partitions=refused))
    await settle()
    leads(run, 2, 2)
    for number, name in ((2, A), (3, B)):
        await settle()
        assert (name_of(run, number), run.partitions_sent[number]) == ((2, name), (2, [0, 1]))
        taken = [PartitionAppendResult(base_offset=number)] * 2
        run.appends[run.sent[number]].set_result(AppendResult(partitions=taken))
    await settle()
    assert run.answers() == [(0, 2), (0, 3)]


async def test_while_another_partition_lacks_something_it_comes_again_by_its_client() -> None:
    """The gap is none of its own, and yet nothing is sent on past it."""
    run = Preparing(prepares=False)
    leads(run, 1, 1)
    await run.produce(A, B, C)
    await run.produce(D, partitions=(1,))
    await answer(run, 3, ErrorCode.kafka_storage_error)
    await answer(run, 1, OUT_OF_ORDER)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 2, OUT_OF_ORDER)
    codes = [NOT_LEADER] * 3 + [ErrorCode.kafka_storage_error]
    assert run.answers() == [(code, -1) for code in codes]
