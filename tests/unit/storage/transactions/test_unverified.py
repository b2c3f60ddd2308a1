"""Which answer the batches of a producer wait for; what becomes of them is tested by `test_verification.py`."""

from __future__ import annotations

import asyncio

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.storage.transactions.unverified import UnverifiedBatches


async def test_an_answer_that_comes_after_the_refusal_is_of_no_account() -> None:
    """It may be there, and its callback still to come: by then the producer waits for another."""
    loop = asyncio.get_running_loop()
    waiting = UnverifiedBatches()
    former, newer, unanswered = (loop.create_future() for _ in range(3))
    former.set_result(ErrorCode.none)
    waiting.on_asked(7, former)
    waiting.on_asked(8, unanswered)
    waiting.refuse_all(KafkaError(ErrorCode.not_leader_or_follower))
    assert unanswered.cancelled(), "nobody need be asked any more"
    assert not waiting.on_answered(7, former)
    waiting.on_asked(7, newer)
    assert not waiting.on_answered(7, former)
    assert waiting.on_answered(7, newer)
    assert not waiting.on_answered(7, newer)
