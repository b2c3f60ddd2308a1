"""Requests of transactional producers: what coordinators are asked in every version, and what the client hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from gateway_harness import Gateway, coordinator_record, topic_records
from transaction_gateway import PRODUCER, gateway_with, only_call

from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2, transactions_pb2
from barnabas.messages.controller_pb2 import CreatedTopic, CreateTopicsResponse
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 10, 22, 24, 25, 26
TXN_OFFSET_COMMIT: Final = 28
TRANSACTION: Final = 1
"""A type of keys in FindCoordinator."""


def added(*codes: int) -> Callable[[Any], Any]:
    """To one transaction, its partitions in order."""
    result = transactions_pb2.TransactionPartitionsResult(error_codes=codes)
    return lambda _: transactions_pb2.AddPartitionsToTxnResponse(transactions=[result])


# FindCoordinator


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_transactional_id_is_served_by_the_leader_of_its_partition(version: int) -> None:
    gateway = gateway_with()
    gateway.metadata.apply(*topic_records(TRANSACTION_STATE_TOPIC, [1, 2], coordinator_id="c1"))
    names = ["pay", "bill", "ship"]
    for name in names:
        body = {"key": name, "key_type": TRANSACTION, "coordinator_keys": [name]}
        answer = await gateway.ask(FIND_COORDINATOR, version, body)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (0, 1 + partition_for_group(name, 2))


async def test_the_topic_of_transactions_is_created_when_the_first_is_looked_for() -> None:
    gateway = Gateway()
    created: list[Any] = []

    def create(message: Any) -> Any:
        created.append(message)
        gateway.metadata.apply(*topic_records(TRANSACTION_STATE_TOPIC, [2], coordinator_id="c1"))
        return CreateTopicsResponse(topics=[CreatedTopic(name=TRANSACTION_STATE_TOPIC)])

    gateway.controller.answers["CreateTopics"] = create
    body = {"key_type": TRANSACTION, "coordinator_keys": ["pay", "bill"]}
    answer = await gateway.ask(FIND_COORDINATOR, 4, body)
    assert [found.node_id for found in answer.coordinators] == [2, 2]
    (message,) = created
    assert [(topic.name, topic.internal) for topic in message.topics] == [(TRANSACTION_STATE_TOPIC, True)]
    await gateway.ask(FIND_COORDINATOR, 4, body)
    assert len(created) == 1


@pytest.mark.parametrize("key_type", [2, 3, -1])
async def test_other_types_of_keys_have_no_coordinators(key_type: int) -> None:
    answer = await Gateway().ask(
        FIND_COORDINATOR, 6, {"key_type": key_type, "coordinator_keys": ["g:topic:0"]}
    )
    assert answer.coordinators[0].error_code == ErrorCode.invalid_request


# InitProducerId


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_gets_its_producer_from_the_coordinator(version: int) -> None:
    response = transactions_pb2.InitProducerIdResponse(producer_id=7, producer_epoch=4)
    gateway = gateway_with({"InitProducerId": lambda _: response})
    body = {**PRODUCER, "transaction_timeout": 60_000}
    answer = await gateway.ask(INIT_PRODUCER_ID, version, body)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 7, 4)
    message = only_call(gateway.transactions)
    assert (message.transactional_id, message.transaction_timeout_ms) == ("pay", 60_000)
    expected = (7, 3) if version >= 3 else (-1, -1)
    assert (message.producer_id, message.producer_epoch) == expected


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.producer_fenced, 3, ErrorCode.invalid_producer_epoch),
        (ErrorCode.producer_fenced, 4, ErrorCode.producer_fenced),
        (ErrorCode.concurrent_transactions, 0, ErrorCode.concurrent_transactions),
        (ErrorCode.invalid_transaction_timeout, 5, ErrorCode.invalid_transaction_timeout),
        (ErrorCode.not_coordinator, 5, ErrorCode.not_coordinator),
    ],
)
async def test_a_refused_producer_has_no_id(code: ErrorCode, version: int, told: ErrorCode) -> None:
    refused = transactions_pb2.InitProducerIdResponse(error_code=code)
    gateway = gateway_with({"InitProducerId": lambda _: refused})
    answer = await gateway.ask(
        INIT_PRODUCER_ID, version, {"transactional_id": "pay", "transaction_timeout": 1}
    )
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (told, -1, -1)


@pytest.mark.parametrize(
    "fields",
    [
        {"transactional_id": ""},
        {"transactional_id": "pay", "producer_id": 7},
        {"transactional_id": "pay", "producer_epoch": 0},
        {"transactional_id": None, "producer_id": 7},
    ],
)
async def test_an_empty_id_and_half_a_producer_are_refused_here(fields: dict[str, Any]) -> None:
    gateway = gateway_with()
    answer = await gateway.ask(INIT_PRODUCER_ID, 4, {"producer_id": -1, "producer_epoch": -1, **fields})
    assert (answer.error_code, answer.producer_id) == (ErrorCode.invalid_request, -1)
    assert gateway.transactions.calls == []


# AddPartitionsToTxn


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_for_a_client(version: int) -> None:
    gateway = gateway_with({"AddPartitionsToTxn": added(0, 0, 0)})
    answer = await gateway.ask(ADD_PARTITIONS, version, v3_body([("orders", [0, 1]), ("bills", [0])]))
    assert rows_of(answer.results_by_topic_v3_and_below) == {"orders": {0: 0, 1: 0}, "bills": {0: 0}}
    (sent,) = only_call(gateway.transactions).transactions
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("pay", 7, 3)
    assert not sent.verify_only
    assert sent.transaction_version == 0
    named = {topic.name: list(topic.partitions) for topic in sent.topics}
    assert named == {"orders": [0, 1], "bills": [0]}


async def test_a_partition_that_is_named_twice_is_answered_twice() -> None:
    gateway = gateway_with({"AddPartitionsToTxn": added(0, 0)})
    body = v3_body([("orders", [1, 1]), ("bills", []), ("orders", [0, 1])])
    answer = await gateway.ask(ADD_PARTITIONS, 3, body)
    rows = [
        (topic.name, [row.partition_index for row in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ]
    assert rows == [("orders", [1, 1]), ("bills", []), ("orders", [0, 1])]
    (sent,) = only_call(gateway.transactions).transactions
    named = {topic.name: list(topic.partitions) for topic in sent.topics}
    assert named == {"orders": [1, 0], "bills": []}, "and asked for once"


@pytest.mark.parametrize("topic", [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_a_client_adds_no_internal_topic(topic: str) -> None:
    gateway = gateway_with()
    answer = await gateway.ask(ADD_PARTITIONS, 3, v3_body([("bills", [0]), (topic, [0])]))
    assert rows_of(answer.results_by_topic_v3_and_below) == {
        "bills": {0: ErrorCode.operation_not_attempted},
        topic: {0: ErrorCode.topic_authorization_failed},
    }
    assert gateway.transactions.calls == []


@pytest.mark.parametrize("missing", [("no-such-topic", 0), ("orders", 3), ("orders", -1)])
async def test_where_a_partition_does_not_exist_none_is_added(missing: tuple[str, int]) -> None:
    gateway = gateway_with()
    topic, index = missing
    answer = await gateway.ask(ADD_PARTITIONS, 3, v3_body([("bills", [0]), (topic, [index])]))
    codes = rows_of(answer.results_by_topic_v3_and_below)
    assert codes["bills"] == {0: ErrorCode.operation_not_attempted}
    assert codes[topic] == {index: ErrorCode.unknown_topic_or_partition}
    assert gateway.transactions.calls == []


@pytest.mark.parametrize(
    ("version", "told"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced), (3, ErrorCode.producer_fenced)],
)
async def test_older_clients_do_not_know_of_fencing(version: int, told: ErrorCode) -> None:
    gateway = gateway_with({"AddPartitionsToTxn": added(ErrorCode.producer_fenced)})
    answer = await gateway.ask(ADD_PARTITIONS, version, v3_body([("bills", [0])]))
    assert rows_of(answer.results_by_topic_v3_and_below) == {"bills": {0: told}}


async def test_a_transaction_may_be_begun_without_a_partition() -> None:
    gateway = gateway_with({"AddPartitionsToTxn": added()})
    answer = await gateway.ask(ADD_PARTITIONS, 3, v3_body([]))
    assert answer.results_by_topic_v3_and_below == ()
    assert len(gateway.transactions.calls) == 1


@pytest.mark.parametrize("version", [4, 5])
async def test_several_transactions_go_to_their_coordinators_and_come_back_in_order(version: int) -> None:
    gateway = gateway_with()
    gateway.metadata.apply(
        coordinator_record("c2"),
        *topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1"),
    )
    names = [f"t{number}" for number in range(6)]
    state = topic_records(TRANSACTION_STATE_TOPIC, [1, 2])
    for record in state[:2]:
        record.partition.coordinator_id = ("c1", "c2")[record.partition.partition]
    gateway.metadata.apply(*state)
    sent: dict[str, list[str]] = {}

    def answering(coordinator: str) -> Callable[[Any], Any]:
        def answer(message: Any) -> Any:
            sent[coordinator] = [each.transactional_id for each in message.transactions]
            results = [
                transactions_pb2.TransactionPartitionsResult(
                    error_codes=[0 if each.verify_only else ErrorCode.transaction_abortable]
                )
                for each in message.transactions
            ]
            assert all(each.transaction_version == 2 for each in message.transactions)
            return transactions_pb2.AddPartitionsToTxnResponse(transactions=results)

        return answer

    for coordinator in ("c1", "c2"):
        gateway.links.transactions_at(coordinator).answers["AddPartitionsToTxn"] = answering(coordinator)
    topics = [{"name": "bills", "partitions": [0]}]
    transactions = [
        {**PRODUCER, "transactional_id": name, "verify_only": number % 2 == 0, "topics": topics}
        for number, name in enumerate(names)
    ]
    bad = {**PRODUCER, "transactional_id": "bad", "topics": [{"name": "none", "partitions": [0]}]}
    answer = await gateway.ask(ADD_PARTITIONS, version, {"transactions": [bad, *transactions]})
    assert answer.error_code == 0
    results = answer.results_by_transaction
    assert [each.transactional_id for each in results] == ["bad", *names]
    codes = [each.topic_results[0].results_by_partition[0].partition_error_code for each in results]
    abortable = ErrorCode.transaction_abortable
    assert codes == [ErrorCode.unknown_topic_or_partition, *(0, abortable) * 3]
    owners = {name: ("c1", "c2")[partition_for_group(name, 2)] for name in names}
    for coordinator, asked in sent.items():
        assert asked == [name for name in names if owners[name] == coordinator]
    assert set(sent) == set(owners.values())


# AddOffsetsToTxn


@pytest.mark.parametrize("version", range(5))
async def test_the_partition_of_a_groups_offsets_is_added(version: int) -> None:
    gateway = gateway_with({"AddPartitionsToTxn": added(ErrorCode.producer_fenced)})
    gateway.metadata.apply(*topic_records(GROUP_METADATA_TOPIC, [1, 1, 1], coordinator_id="c1"))
    answer = await gateway.ask(ADD_OFFSETS, version, {**PRODUCER, "group_id": "readers"})
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert answer.error_code == fenced
    (sent,) = only_call(gateway.transactions).transactions
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("pay", 7, 3)
    assert (sent.transaction_version, sent.verify_only) == (0, False)
    named = [(topic.name, list(topic.partitions)) for topic in sent.topics]
    assert named == [(GROUP_METADATA_TOPIC, [partition_for_group("readers", 3)])]


async def test_a_coordinator_that_has_not_heard_of_the_offsets_topic_is_asked_again_later() -> None:
    """librdkafka aborts the transaction on what no broker of Kafka's says here."""
    gateway = gateway_with({"AddPartitionsToTxn": added(ErrorCode.unknown_topic_or_partition)})
    gateway.metadata.apply(*topic_records(GROUP_METADATA_TOPIC, [1], coordinator_id="c1"))
    answer = await gateway.ask(ADD_OFFSETS, 4, {**PRODUCER, "group_id": "readers"})
    assert answer.error_code == ErrorCode.coordinator_not_available


async def test_offsets_of_a_group_that_nobody_has_spoken_of_need_their_topic() -> None:
    state = topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1")
    gateway = Gateway([coordinator_record("c1"), *state])
    answer = await gateway.ask(ADD_OFFSETS, 4, {**PRODUCER, "group_id": "readers"})
    assert answer.error_code == ErrorCode.coordinator_not_available
    assert [method for method, *_ in gateway.controller.calls] == ["CreateTopics"]


# EndTxn


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_is_ended(version: int, committed: bool) -> None:
    response = transactions_pb2.EndTxnResponse(producer_id=8, producer_epoch=4)
    gateway = gateway_with({"EndTxn": lambda _: response})
    answer = await gateway.ask(END_TXN, version, {**PRODUCER, "committed": committed})
    assert answer.error_code == 0
    message = only_call(gateway.transactions)
    assert (message.transactional_id, message.producer_id, message.producer_epoch) == ("pay", 7, 3)
    assert message.committed is committed
    assert message.transaction_version == (2 if version >= 5 else 0)
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (8, 4)


@pytest.mark.parametrize(
    ("version", "told"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced), (5, ErrorCode.producer_fenced)],
)
async def test_who_is_fenced_ends_nothing(version: int, told: ErrorCode) -> None:
    refused = transactions_pb2.EndTxnResponse(error_code=ErrorCode.producer_fenced)
    gateway = gateway_with({"EndTxn": lambda _: refused})
    answer = await gateway.ask(END_TXN, version, {**PRODUCER, "committed": True})
    assert answer.error_code == told
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


# TxnOffsetCommit


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_transaction_go_to_the_groups_coordinator(version: int) -> None:
    gateway = gateway_with()
    gateway.coordinator.answers["TxnOffsetCommit"] = committing(0)
    answer = await gateway.ask(TXN_OFFSET_COMMIT, version, commit_body())
    message = only_call(gateway.coordinator)
    assert (message.transactional_id, message.group_id) == ("pay", "readers")
    assert (message.producer_id, message.producer_epoch) == (7, 3)
    assert message.adds_partitions is (version >= 5)
    is_named = version >= 3
    assert (message.generation_id, message.member_id) == ((2, "m") if is_named else (-1, ""))
    assert message.HasField("group_instance_id") == is_named
    (topic,) = message.topics
    assert topic.name == "orders"
    assert [(part.partition, part.committed_offset, part.metadata) for part in topic.partitions] == [
        (1, 40, "x")
    ]
    assert topic.partitions[0].committed_leader_epoch == (5 if version >= 2 else -1)
    missing = ErrorCode.unknown_topic_or_partition
    codes = [(t.name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions]
    assert codes == [("orders", 9, missing), ("orders", 1, 0), ("nothing", 0, missing)]


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.coordinator_load_in_progress, 1, ErrorCode.coordinator_not_available),
        (ErrorCode.coordinator_load_in_progress, 2, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.transaction_abortable, 3, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, 4, ErrorCode.transaction_abortable),
        (ErrorCode.illegal_generation, 5, ErrorCode.illegal_generation),
    ],
)
async def test_a_refused_commit_has_a_code_that_the_version_knows(
    code: ErrorCode, version: int, told: ErrorCode
) -> None:
    gateway = gateway_with()
    gateway.coordinator.answers["TxnOffsetCommit"] = committing(code)
    answer = await gateway.ask(TXN_OFFSET_COMMIT, version, commit_body())
    assert answer.topics[0].partitions[1].error_code == told


async def test_offsets_of_what_does_not_exist_are_nobodys_business() -> None:
    gateway = gateway_with()
    body = {**commit_body(), "topics": [commit_topic("nothing", 0)]}
    answer = await gateway.ask(TXN_OFFSET_COMMIT, 5, body)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition
    assert gateway.coordinator.calls == []


# Nobody answers

V3 = {"v3_and_below_topics": [{"name": "bills", "partitions": [0]}], "v3_and_below_transactional_id": "pay"}
BATCH = {"transactions": [{**PRODUCER, "topics": [{"name": "bills", "partitions": [0]}]}]}

Code = Callable[[Any], Any]

WITHOUT_ANSWER: Final[list[tuple[int, int, dict[str, Any], Code]]] = [
    (INIT_PRODUCER_ID, 5, PRODUCER, lambda answer: answer.error_code),
    (
        ADD_PARTITIONS,
        3,
        V3,
        lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    (
        ADD_PARTITIONS,
        5,
        BATCH,
        lambda answer: (
            answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
        ),
    ),
    (ADD_OFFSETS, 4, {**PRODUCER, "group_id": "readers"}, lambda answer: answer.error_code),
    (END_TXN, 5, {**PRODUCER, "committed": True}, lambda answer: answer.error_code),
    (
        TXN_OFFSET_COMMIT,
        5,
        {**PRODUCER, "group_id": "readers", "topics": [{"name": "bills", "partitions": [{}]}]},
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
]


@pytest.mark.parametrize(("api_key", "version", "body", "code"), WITHOUT_ANSWER)
@pytest.mark.parametrize("has_topic", [True, False])
async def test_clients_look_for_the_coordinator_again(
    api_key: int,
    version: int,
    body: dict[str, Any],
    code: Code,
    has_topic: bool,
) -> None:
    gateway = gateway_with() if has_topic else Gateway()
    answer = await gateway.ask(api_key, version, body)
    assert code(answer) == ErrorCode.coordinator_not_available


# What requests and answers are made of


def v3_body(topics: list[tuple[str, list[int]]]) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "pay",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 3,
        "v3_and_below_topics": [{"name": name, "partitions": partitions} for name, partitions in topics],
    }


def rows_of(results: Any) -> dict[str, dict[int, int]]:
    return {
        topic.name: {row.partition_index: row.partition_error_code for row in topic.results_by_partition}
        for topic in results
    }


def commit_topic(name: str, *partitions: int) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [
            {
                "partition_index": index,
                "committed_offset": 40,
                "committed_leader_epoch": 5,
                "committed_metadata": "x",
            }
            for index in partitions
        ],
    }


def commit_body() -> dict[str, Any]:
    return {
        **PRODUCER,
        "group_id": "readers",
        "generation_id": 2,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [commit_topic("orders", 9, 1), commit_topic("nothing", 0), commit_topic("bills")],
    }


def committing(code: int) -> Callable[[Any], Any]:
    def answer(message: Any) -> Any:
        topics = [
            coordinator_pb2.OffsetCommitTopicResult(
                name=topic.name,
                partitions=[
                    coordinator_pb2.OffsetCommitPartitionResult(partition=each.partition, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        return coordinator_pb2.OffsetCommitResponse(topics=topics)

    return answer
