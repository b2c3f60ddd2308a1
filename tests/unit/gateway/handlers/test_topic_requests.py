"""CreateTopics, DeleteTopics, CreatePartitions: what the controller is told, what the client hears, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_harness import Gateway, topic_id, topic_records

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.messages.controller_pb2 import (
    CreatedTopic,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsResponse,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import ListOffsetsRequest, ListOffsetsResponse

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37


class Seconds:
    """The time that calls of the controller go by."""

    passed = 0.0


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    """They pass when a test says so."""
    time = Seconds()
    monkeypatch.setattr("barnabas.gateway.inside.controller_calls._now", lambda: time.passed)
    return time


def created(message: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatedTopic(
                name=topic.name,
                result=ResourceResult(),
                topic_id=b"" if message.validate_only else topic_id(topic.name),
                partition_count=2,
                replication_factor=1,
            )
            for topic in message.topics
        ]
    )


def new_topic(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_answers_once_the_image_has_them(version: int) -> None:
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    body = {"topics": [new_topic("new")], "timeout": 5_000, "validate_only": False}
    asking = asyncio.create_task(gateway.ask(CREATE_TOPICS, version, body))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    gateway.metadata.apply(*topic_records("new", [1, 2]))
    (topic,) = (await asking).topics
    assert (topic.name, topic.error_code) == ("new", 0)
    _, message, timeout = gateway.controller.calls[0]
    assert timeout == 5.0
    assert message.topics[0].partition_count == -1
    assert message.topics[0].configs[0].value == "1000"
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 1)
        entries = {entry.name: entry for entry in topic.configs}
        assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("1000", 1)
        assert entries["cleanup.policy"].config_source == 5
    if version >= 7:
        assert topic.topic_id.bytes == topic_id("new")


async def test_topics_are_answered_when_their_leaders_have_opened_them() -> None:
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    gateway.controller.answers["CreatePartitions"] = lambda _: CreatePartitionsResponse(
        results=[ResourceResult()]
    )
    opened = asyncio.Event()

    async def answer(message: ListOffsetsRequest) -> ListOffsetsResponse:
        await opened.wait()
        return ListOffsetsResponse()

    nodes = [gateway.node(number) for number in (1, 2)]
    for node in nodes:
        node.answers["ListOffsets"] = answer
    gateway.metadata.apply(*topic_records("new", [1, 2, 1]))
    creation = {"topics": [new_topic("new")], "timeout": 5_000, "validate_only": False}
    enlargement = {"topics": [{"name": "new", "count": 3}], "timeout": 5_000, "validate_only": False}
    for api_key, version, body in ((CREATE_TOPICS, 7, creation), (CREATE_PARTITIONS, 3, enlargement)):
        opened.clear()
        asking = asyncio.create_task(gateway.ask(api_key, version, body))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not asking.done()
        opened.set()
        await asking
        asked = [[each.partition for each in node.calls[-1][1].partitions] for node in nodes]
        assert asked == [[0, 2], [1]]


async def test_metadata_create_so_many_missing_topics_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.AUTO_CREATED_TOPICS_MAX", 2)
    gateway = Gateway()

    def create(message: Any) -> CreateTopicsResponse:
        gateway.metadata.apply(
            *(record for topic in message.topics for record in topic_records(topic.name, [1]))
        )
        return created(message)

    gateway.controller.answers["CreateTopics"] = create
    body = {"topics": [{"name": name} for name in "edcba"], "allow_auto_topic_creation": True}
    not_yet = ErrorCode.leader_not_available
    for codes in ([not_yet] * 3 + [0, 0], [not_yet, 0, 0, 0, 0], [0] * 5):
        answer = await gateway.ask(METADATA, 4, body)
        assert [topic.error_code for topic in answer.topics] == codes
    sizes = [len(message.topics) for _, message, _ in gateway.controller.calls]
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(("version", "count"), [(4, 3_000), (7, 100)])
async def test_others_are_served_while_many_new_topics_are_described(version: int, count: int) -> None:
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    names = [f"t{index}" for index in range(count)]
    gateway.metadata.apply(*(record for name in names for record in topic_records(name, [-1])))
    body = {"topics": [new_topic(name) for name in names], "timeout": 0, "validate_only": False}
    asking = asyncio.create_task(gateway.ask(CREATE_TOPICS, version, body))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    topics = (await asking).topics
    assert [topic.name for topic in topics] == names
    assert all(len(topic.configs) > 30 for topic in topics if version >= 5)


@pytest.mark.parametrize("version", [4, 7])
async def test_settings_of_many_new_topics_are_left_out(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The topics are there, so that the answer is not refused."""
    monkeypatch.setattr(limits, "CREATED_SETTINGS_BYTES_MAX", 1)
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    gateway.metadata.apply(*(record for name in "ab" for record in topic_records(name, [-1])))
    body = {"topics": [new_topic("a"), new_topic("b")], "timeout": 0, "validate_only": False}
    shown, left_out = (await gateway.ask(CREATE_TOPICS, version, body)).topics
    assert (shown.error_code, left_out.error_code) == (0, 0)
    if version >= 5:
        assert (len(shown.configs) > 30, shown.topic_config_error_code) == (True, 0)
        assert left_out.configs == ()
        assert left_out.topic_config_error_code == ErrorCode.invalid_request
        assert (left_out.num_partitions, left_out.replication_factor) == (2, 1)


async def test_create_topics_validates_without_waiting() -> None:
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    body = {"topics": [new_topic("new")], "timeout": 5_000, "validate_only": True}
    (topic,) = (await gateway.ask(CREATE_TOPICS, 7, body)).topics
    assert (topic.error_code, topic.num_partitions, topic.topic_id) == (0, 2, None)
    assert gateway.controller.calls[0][1].validate_only


async def test_create_topics_tells_a_topics_own_error() -> None:
    gateway = Gateway()
    result = ResourceResult(
        error_code=ErrorCode.topic_already_exists, error_message="Topic 'bills' already exists."
    )
    gateway.controller.answers["CreateTopics"] = lambda _: CreateTopicsResponse(
        topics=[CreatedTopic(name="bills", result=result)]
    )
    body = {"topics": [new_topic("bills")], "timeout": 5_000}
    (topic,) = (await gateway.ask(CREATE_TOPICS, 5, body)).topics
    assert (topic.error_code, topic.error_message) == (36, "Topic 'bills' already exists.")
    assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutcomeUnknown("it went away"), ErrorCode.not_controller),
        (Unreachable("nobody is there"), ErrorCode.not_controller),
        (DeadlinePassed("too late"), ErrorCode.request_timed_out),
    ],
)
async def test_lost_controller_is_each_topics_error(error: LinkError, code: ErrorCode) -> None:
    gateway = Gateway()

    def fail(_: Any) -> Any:
        raise error

    for method in ("CreateTopics", "DeleteTopics", "CreatePartitions"):
        gateway.controller.answers[method] = fail
    created_topics = await gateway.ask(CREATE_TOPICS, 7, {"topics": [new_topic("a")], "timeout": 1_000})
    assert [topic.error_code for topic in created_topics.topics] == [code]
    deleted = await gateway.ask(DELETE_TOPICS, 5, {"topic_names": ["a", "b"], "timeout": 1_000})
    assert [topic.error_code for topic in deleted.responses] == [code, code]
    grown = await gateway.ask(CREATE_PARTITIONS, 3, {"topics": [{"name": "a", "count": 4}], "timeout": 1_000})
    assert [topic.error_code for topic in grown.results] == [code]
    assert grown.results[0].error_message


@pytest.mark.parametrize(
    ("why", "told", "code"),
    [
        (Refusal.NEVER_ACCEPTED, ErrorCode.policy_violation, ErrorCode.policy_violation),
        (Refusal.NEVER_ACCEPTED, ErrorCode.request_timed_out, ErrorCode.request_timed_out),
        (Refusal.NEVER_ACCEPTED, None, ErrorCode.unknown_server_error),
        (Refusal.NOT_REGISTERED, None, ErrorCode.unknown_server_error),
        (Refusal.UNKNOWN_CALL, None, ErrorCode.unsupported_version),
    ],
)
async def test_what_the_controller_refuses_is_told_as_it_says(
    why: Refusal, told: ErrorCode | None, code: ErrorCode
) -> None:
    gateway = Gateway()

    def refuse(_: Any) -> Any:
        raise Refused(why, "topics/a would have 600000 bytes", told)

    gateway.controller.answers["CreateTopics"] = refuse
    (topic,) = (await gateway.ask(CREATE_TOPICS, 7, {"topics": [new_topic("a")], "timeout": 1_000})).topics
    assert topic.error_code == code
    assert "topics/a would have 600000 bytes" in topic.error_message
    assert len(gateway.controller.calls) == 1


async def test_controller_that_is_not_active_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.CONTROLLER_RETRY_SECONDS", 0)
    gateway = Gateway()
    attempts = []

    def answer(message: Any) -> Any:
        attempts.append(message)
        if len(attempts) < 3:
            raise Refused((Refusal.NOT_ACTIVE, Refusal.TOO_BUSY)[len(attempts) - 1], "not now")
        return created(message)

    gateway.controller.answers["CreateTopics"] = answer
    body = {"topics": [new_topic("a")], "timeout": 1_000, "validate_only": True}
    (topic,) = (await gateway.ask(CREATE_TOPICS, 7, body)).topics
    assert (topic.error_code, len(attempts)) == (0, 3)


async def test_controller_that_never_takes_the_request_is_given_up(
    monkeypatch: pytest.MonkeyPatch, seconds: Seconds
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.CONTROLLER_RETRY_SECONDS", 0)
    gateway = Gateway()

    def answer(_: Any) -> Any:
        seconds.passed += 0.4
        raise Refused(Refusal.NOT_ACTIVE, "no controller is active yet")

    gateway.controller.answers["CreateTopics"] = answer
    (topic,) = (await gateway.ask(CREATE_TOPICS, 7, {"topics": [new_topic("a")], "timeout": 1_000})).topics
    assert topic.error_code == ErrorCode.request_timed_out
    assert [timeout for _, _, timeout in gateway.controller.calls] == pytest.approx([1.0, 0.6, 0.2])


async def test_timeout_zero_does_not_wait_for_the_image() -> None:
    gateway = Gateway()
    gateway.controller.answers["CreateTopics"] = created
    (topic,) = (await gateway.ask(CREATE_TOPICS, 7, {"topics": [new_topic("new")], "timeout": 0})).topics
    assert topic.error_code == 0
    assert gateway.controller.calls[0][2] == limits.CALL_TIMEOUT_SECONDS


async def test_delete_topics_waits_until_they_are_gone() -> None:
    gateway = Gateway()
    gateway.controller.answers["DeleteTopics"] = lambda _: DeleteTopicsResponse(
        topics=[
            DeletedTopic(name="bills", topic_id=topic_id("bills"), result=ResourceResult()),
            DeletedTopic(
                topic_id=bytes(15) + b"x", result=ResourceResult(error_code=ErrorCode.unknown_topic_id)
            ),
        ]
    )
    body = {"topics": [{"name": "bills"}, {"name": None, "topic_id": bytes(15) + b"x"}], "timeout": 5_000}
    asking = asyncio.create_task(gateway.ask(DELETE_TOPICS, 6, body))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    gateway.metadata.apply(MetadataRecord(key="topics/bills"))
    first, second = (await asking).responses
    assert (first.name, first.topic_id.bytes, first.error_code) == ("bills", topic_id("bills"), 0)
    assert (second.name, second.error_code) == (None, ErrorCode.unknown_topic_id)
    refs = gateway.controller.calls[0][1].topics
    assert [(ref.name, bool(ref.topic_id)) for ref in refs] == [("bills", False), ("", True)]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (5, 73)])
async def test_disabled_deletion_has_an_older_name(version: int, code: int) -> None:
    gateway = Gateway()
    result = ResourceResult(error_code=ErrorCode.topic_deletion_disabled)
    gateway.controller.answers["DeleteTopics"] = lambda _: DeleteTopicsResponse(
        topics=[DeletedTopic(name="bills", result=result)]
    )
    answer = await gateway.ask(DELETE_TOPICS, version, {"topic_names": ["bills"], "timeout": 1_000})
    assert [topic.error_code for topic in answer.responses] == [code]


async def test_create_partitions_answers_one_result_per_topic() -> None:
    gateway = Gateway()
    refused = ResourceResult(error_code=ErrorCode.invalid_request, error_message="Duplicate topic name.")
    gateway.controller.answers["CreatePartitions"] = lambda _: CreatePartitionsResponse(
        results=[refused, ResourceResult(), refused]
    )
    topics = [{"name": name, "count": 4, "assignments": None} for name in ("bills", "orders", "bills")]
    asking = asyncio.create_task(gateway.ask(CREATE_PARTITIONS, 2, {"topics": topics, "timeout": 5_000}))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    gateway.metadata.apply(*topic_records("orders", [1, 2, 1, 2]))
    assert [(result.name, result.error_code) for result in (await asking).results] == [
        ("bills", 42),
        ("orders", 0),
    ]


async def test_assigned_partitions_are_numbered_among_themselves() -> None:
    gateway = Gateway()
    gateway.controller.answers["CreatePartitions"] = lambda _: CreatePartitionsResponse(
        results=[ResourceResult()]
    )
    topic = {"name": "bills", "count": 3, "assignments": [{"broker_ids": [2]}, {"broker_ids": [1]}]}
    await gateway.ask(CREATE_PARTITIONS, 3, {"topics": [topic], "timeout": 0})
    (sent,) = gateway.controller.calls[0][1].topics
    assert [(each.partition, list(each.node_ids)) for each in sent.assignments] == [(0, [2]), (1, [1])]


@pytest.mark.parametrize("name", [None, "", "bills", "another"])
async def test_metadata_by_id_looks_at_no_name(name: str | None) -> None:
    gateway = Gateway()
    known = {"name": name, "topic_id": topic_id("bills")}
    unknown = {"name": name, "topic_id": bytes(15) + b"x"}
    found, missing = (await gateway.ask(3, 13, {"topics": [known, unknown]})).topics
    assert (found.name, found.topic_id.bytes, found.error_code) == ("bills", topic_id("bills"), 0)
    assert (missing.name, missing.topic_id.bytes) == (None, bytes(15) + b"x")
    assert missing.error_code == ErrorCode.unknown_topic_id
    assert gateway.controller.calls == []
