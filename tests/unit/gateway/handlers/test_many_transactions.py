"""AddPartitionsToTxn in the form of brokers, with more transactions than anybody answers at once."""

from __future__ import annotations

from typing import Any, Final

import pytest
from transaction_gateway import PRODUCER, gateway_with

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import transactions_pb2

ADD_PARTITIONS: Final = 24


async def test_many_transactions_are_asked_about_a_few_at_a_time() -> None:
    """One request may name thousands: whoever answers them all at once serves nobody else meanwhile."""
    count = limits.KEYS_AT_A_TIME * 2 + 1
    asked: list[list[int]] = []

    def answer(message: Any) -> Any:
        asked.append([each.producer_id for each in message.transactions])
        return transactions_pb2.AddPartitionsToTxnResponse(
            transactions=[
                transactions_pb2.TransactionPartitionsResult(error_codes=[each.producer_id % 2 * 51])
                for each in message.transactions
            ]
        )

    gateway = gateway_with({"AddPartitionsToTxn": answer})
    topics = [{"name": "bills", "partitions": [0]}]
    transactions = [
        {**PRODUCER, "producer_id": number, "verify_only": True, "topics": topics} for number in range(count)
    ]
    result = await gateway.ask(ADD_PARTITIONS, 5, {"transactions": transactions})
    assert [len(each) for each in asked] == [limits.KEYS_AT_A_TIME, limits.KEYS_AT_A_TIME, 1]
    assert [number for each in asked for number in each] == list(range(count)), "one after the other"
    codes = [
        each.topic_results[0].results_by_partition[0].partition_error_code
        for each in result.results_by_transaction
    ]
    assert codes == [number % 2 * 51 for number in range(count)]
    timeouts = [seconds for _, _, seconds in gateway.transactions.calls]
    assert timeouts == sorted(timeouts, reverse=True), "all of them have the time of one"


async def test_transactions_whose_turn_does_not_come_in_time_are_to_be_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CALL_TIMEOUT_SECONDS", 1e-9)
    monkeypatch.setattr(limits, "KEYS_AT_A_TIME", 1)
    gateway = gateway_with(
        {
            "AddPartitionsToTxn": lambda _: transactions_pb2.AddPartitionsToTxnResponse(
                transactions=[transactions_pb2.TransactionPartitionsResult(error_codes=[0])]
            )
        }
    )
    each = {**PRODUCER, "topics": [{"name": "bills", "partitions": [0]}]}
    answer = await gateway.ask(ADD_PARTITIONS, 5, {"transactions": [each, each]})
    assert len(gateway.transactions.calls) == 1
    codes = [
        each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    ]
    assert codes == [0, ErrorCode.coordinator_not_available]
