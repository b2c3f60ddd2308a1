"""What a coordinator's answer is to the producer; each code with a producer in `test_verification.py`."""

from __future__ import annotations

import asyncio

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.storage.transactions.answers import code_of, refusal


def test_only_yes_refuses_nothing() -> None:
    assert refusal(ErrorCode.none, adds_partitions=True) is None
    refused = refusal(ErrorCode.unknown_server_error, adds_partitions=False)
    assert refused is not None
    assert refused.code is ErrorCode.unknown_server_error
    assert "UNKNOWN_SERVER_ERROR" in refused.message


async def test_no_answer_is_one_too() -> None:
    loop = asyncio.get_running_loop()
    answered, failed, withdrawn = (loop.create_future() for _ in range(3))
    answered.set_result(ErrorCode.transaction_abortable)
    failed.set_exception(Unreachable("away"))
    withdrawn.cancel()
    assert [code_of(each) for each in (answered, failed, withdrawn)] == [
        ErrorCode.transaction_abortable,
        ErrorCode.network_exception,
        ErrorCode.network_exception,
    ]
