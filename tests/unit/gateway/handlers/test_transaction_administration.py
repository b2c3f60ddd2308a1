"""What administrators ask about transactions: markers for those that hang, descriptions, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gateway_harness import ONE_BROKER_LISTENER, Gateway, coordinator_record, topic_records
from transaction_gateway import gateway_with, only_call

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import NotSentInTime, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.messages import transactions_pb2
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC

WRITE_TXN_MARKERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 65, 66


def marker(producer_id: int, *topics: tuple[str, list[int]]) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 3,
        "transaction_result": False,
        "coordinator_epoch": 6,
        "transaction_version": 2,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
    }


def marking(*codes: int) -> Callable[[Any], Any]:
    result = transactions_pb2.TransactionPartitionsResult(error_codes=codes)
    return lambda _: transactions_pb2.WriteTxnMarkersResponse(markers=[result])


def marked(answer: Any) -> dict[int, dict[str, dict[int, int]]]:
    return {
        row.producer_id: {
            topic.name: {part.partition_index: part.error_code for part in topic.partitions}
            for topic in row.topics
        }
        for row in answer.markers
    }


def listing(names: list[str], unknown: list[str]) -> Callable[[Any], Any]:
    response = transactions_pb2.ListTransactionsResponse(
        unknown_states=unknown,
        transactions=[
            transactions_pb2.ListedTransaction(transactional_id=name, producer_id=7, state="Ongoing")
            for name in names
        ],
    )
    return lambda _: response


# WriteTxnMarkers


@pytest.mark.parametrize("version", [1, 2])
async def test_markers_are_written_by_some_coordinator(version: int) -> None:
    gateway = gateway_with({"WriteTxnMarkers": marking(ErrorCode.none, ErrorCode.invalid_producer_epoch)})
    body = {
        "markers": [
            marker(7, ("orders", [0, 1]), ("nothing", [0])),
            marker(8, ("orders", [77])),
            marker(9),
        ]
    }
    answer = await gateway.ask(WRITE_TXN_MARKERS, version, body)
    (sent,) = only_call(gateway.transactions).markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch, sent.committed) == (7, 3, 6, False)
    assert sent.transaction_version == (2 if version >= 2 else 0)
    assert [(topic.name, list(topic.partitions)) for topic in sent.topics] == [("orders", [0, 1])]
    missing = ErrorCode.unknown_topic_or_partition
    assert marked(answer) == {
        7: {"orders": {0: 0, 1: ErrorCode.invalid_producer_epoch}, "nothing": {0: missing}},
        8: {"orders": {77: missing}},
    }


async def test_two_markers_of_one_producer_share_their_place_in_the_answer() -> None:
    gateway = gateway_with({"WriteTxnMarkers": marking(0)})
    body = {"markers": [marker(7, ("orders", [0])), marker(7, ("bills", [0]), ("orders", [0]))]}
    gateway.transactions.answers["WriteTxnMarkers"] = lambda message: (
        transactions_pb2.WriteTxnMarkersResponse(
            markers=[
                transactions_pb2.TransactionPartitionsResult(error_codes=[0]),
                transactions_pb2.TransactionPartitionsResult(
                    error_codes=[0, ErrorCode.transaction_coordinator_fenced]
                ),
            ]
        )
    )
    answer = await gateway.ask(WRITE_TXN_MARKERS, 1, body)
    assert marked(answer) == {7: {"orders": {0: ErrorCode.transaction_coordinator_fenced}, "bills": {0: 0}}}


async def test_no_markers_are_answered_at_once() -> None:
    gateway = gateway_with()
    answer = await gateway.ask(WRITE_TXN_MARKERS, 1, {"markers": []})
    assert answer.markers == ()
    assert gateway.transactions.calls == []


@pytest.mark.parametrize(
    ("error", "is_passed_on"),
    [
        (Unreachable("nobody is there"), True),
        (Refused(Refusal.UNKNOWN_CALL, "of an earlier version"), True),
        (OutcomeUnknown("it broke"), False),
        (NotSentInTime("too late"), False),
    ],
)
async def test_markers_that_one_coordinator_certainly_did_not_write_go_to_the_next(
    error: Exception,
    is_passed_on: bool,
) -> None:
    gateway = gateway_with()
    gateway.metadata.apply(coordinator_record("c2"))

    def fail(_: Any) -> Any:
        raise error

    gateway.links.transactions_at("c1").answers["WriteTxnMarkers"] = fail
    gateway.links.transactions_at("c2").answers["WriteTxnMarkers"] = marking(0)
    answer = await gateway.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker(7, ("orders", [0]))]})
    code = 0 if is_passed_on else ErrorCode.not_leader_or_follower
    assert marked(answer) == {7: {"orders": {0: code}}}
    assert len(gateway.links.transactions_at("c2").calls) == is_passed_on


# DescribeTransactions


async def test_transactions_are_described() -> None:
    described = {
        "pay": transactions_pb2.TransactionDescription(
            transactional_id="pay",
            state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_700_000_000_001,
            producer_id=7,
            producer_epoch=3,
            topics=[transactions_pb2.TransactionTopic(name="orders", partitions=[0, 1])],
        ),
        "idle": transactions_pb2.TransactionDescription(
            transactional_id="idle", state="Empty", transaction_start_time_ms=-1, producer_id=8
        ),
        "none": transactions_pb2.TransactionDescription(
            transactional_id="none", error_code=ErrorCode.transactional_id_not_found
        ),
    }

    def describe(message: Any) -> Any:
        assert message.bytes_max == limits.GATHERED_AT_A_TIME_BYTES
        found = [described[name] for name in message.transactional_ids]
        return transactions_pb2.DescribeTransactionsResponse(transactions=found)

    gateway = gateway_with({"DescribeTransactions": describe})
    names = ["pay", "none", "idle", "pay"]
    answer = await gateway.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": names})
    rows = answer.transaction_states
    assert [row.transactional_id for row in rows] == names
    assert [row.transaction_state for row in rows] == ["Ongoing", "", "Empty", "Ongoing"]
    assert rows[0].transaction_start_time.timestamp() == 1_700_000_000.001
    assert rows[2].transaction_start_time is None
    assert [(topic.topic, topic.partitions) for topic in rows[0].topics] == [("orders", (0, 1))]
    assert (rows[0].producer_id, rows[0].producer_epoch) == (7, 3)
    assert rows[1].error_code == ErrorCode.transactional_id_not_found
    assert rows[1].transaction_start_time.timestamp() == 0


async def test_descriptions_that_do_not_fit_in_one_answer_are_asked_for_again() -> None:
    def describe(message: Any) -> Any:
        first = message.transactional_ids[0]
        return transactions_pb2.DescribeTransactionsResponse(
            transactions=[transactions_pb2.TransactionDescription(transactional_id=first, producer_id=1)]
        )

    gateway = gateway_with({"DescribeTransactions": describe})
    answer = await gateway.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["a", "b", "c"]})
    assert [row.transactional_id for row in answer.transaction_states] == ["a", "b", "c"]
    assert len(gateway.transactions.calls) == 3


# ListTransactions


@pytest.mark.parametrize("version", range(3))
async def test_all_coordinators_are_asked_for_their_transactions(version: int) -> None:
    gateway = gateway_with(listener=ONE_BROKER_LISTENER)
    gateway.metadata.apply(coordinator_record("c2"))
    for coordinator, names in (("c1", ["pay"]), ("c2", ["bill", "act"])):
        gateway.links.transactions_at(coordinator).answers["ListTransactions"] = listing(names, ["Odd"])
    body = {
        "state_filters": ["Ongoing", "Odd", "Ongoing"],
        "producer_id_filters": [7, 8],
        "duration_filter": 5_000,
        "transactional_id_pattern": "p.*",
    }
    answer = await gateway.ask(LIST_TRANSACTIONS, version, body)
    assert answer.error_code == 0
    assert answer.unknown_state_filters == ("Odd",)
    assert [row.transactional_id for row in answer.transaction_states] == ["act", "bill", "pay"]
    assert {(row.producer_id, row.transaction_state) for row in answer.transaction_states} == {(7, "Ongoing")}
    for coordinator in ("c1", "c2"):
        message = only_call(gateway.links.transactions_at(coordinator))
        assert list(message.states) == ["Ongoing", "Odd"]
        assert list(message.producer_ids) == [7, 8]
        assert message.duration_ms == (5_000 if version >= 1 else -1)
        assert message.HasField("transactional_id_pattern") == (version >= 2)


async def test_a_broker_lists_the_transactions_that_are_found_with_it() -> None:
    gateway = gateway_with()
    gateway.metadata.apply(*topic_records(TRANSACTION_STATE_TOPIC, [1, 2], coordinator_id="c1"))
    names = [f"t{number}" for number in range(8)]
    gateway.transactions.answers["ListTransactions"] = listing(names, [])
    answer = await gateway.ask(LIST_TRANSACTIONS, 2, {})
    listed = [row.transactional_id for row in answer.transaction_states]
    assert listed == [name for name in names if partition_for_group(name, 2) == 0]
    assert 0 < len(listed) < len(names)


async def test_a_list_that_may_lack_something_is_asked_for_again() -> None:
    gateway = gateway_with()
    gateway.metadata.apply(coordinator_record("c2"))
    gateway.links.transactions_at("c2").answers["ListTransactions"] = listing(["pay"], [])
    answer = await gateway.ask(LIST_TRANSACTIONS, 2, {})
    assert answer.error_code == ErrorCode.coordinator_load_in_progress
    assert answer.transaction_states == ()
    answer = await Gateway([]).ask(LIST_TRANSACTIONS, 2, {})
    assert answer.error_code == ErrorCode.coordinator_load_in_progress


async def test_a_bad_pattern_is_refused() -> None:
    code = ErrorCode.invalid_regular_expression
    refused = transactions_pb2.ListTransactionsResponse(error_code=code)
    gateway = gateway_with({"ListTransactions": lambda _: refused})
    answer = await gateway.ask(LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "("})
    assert answer.error_code == code


async def test_a_description_that_nobody_gives_is_asked_for_again() -> None:
    for gateway in (gateway_with(), Gateway()):
        answer = await gateway.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["pay"]})
        assert answer.transaction_states[0].error_code == ErrorCode.coordinator_not_available
