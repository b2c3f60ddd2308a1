"""IncrementalAlterConfigs as a pure decision."""

from __future__ import annotations

import pytest

from barnabas.controller.core.configs import alter_configs
from barnabas.controller.core.nodes import register_node
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import APPEND_CONFIG as APPEND
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.kernel.kafka_values import DELETE_CONFIG as DELETE
from barnabas.kernel.kafka_values import SET_CONFIG as SET
from barnabas.kernel.kafka_values import SUBTRACT_CONFIG as SUBTRACT
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, partition_key, topic_key

Op = tuple[str, int, str | None]


@pytest.fixture
def image() -> MetadataImage:
    empty = MetadataImage()
    node = md.NodeRecord(node_id=1, incarnation_id="a", address="n1")
    image = empty.apply(register_node(empty, node).records, 1)
    partition = md.PartitionRecord(topic_id=b"t" * 16, leader=1, replicas=[1], isr=[1])
    topic = md.TopicRecord(name="orders", topic_id=b"t" * 16, partition_count=1)
    records = [
        md.MetadataRecord(key=partition_key(b"t" * 16, 0), partition=partition),
        md.MetadataRecord(key=topic_key("orders"), topic=topic),
    ]
    return image.apply(records, 2)


def alter(
    image: MetadataImage,
    *operations: Op,
    kind: int = TOPIC_RESOURCE,
    name: str = "orders",
    validate_only: bool = False,
) -> tuple[ErrorCode, str, MetadataImage]:
    ops = [pb.ConfigOperation(name=n, operation=o, value=v) for n, o, v in operations]
    change = pb.ConfigResourceChange(resource_type=kind, resource_name=name, operations=ops)
    request = pb.IncrementalAlterConfigsRequest(resources=[change], validate_only=validate_only)
    decision = alter_configs(image, request)
    result = decision.response.results[0]
    after = image.apply(decision.records, image.revision + 1)
    return ErrorCode(result.error_code), result.error_message, after


def test_set_and_delete(image: MetadataImage) -> None:
    code, _, image = alter(image, ("retention.ms", SET, "5"), ("cleanup.policy", SET, "compact"))
    assert code is ErrorCode.none
    assert image.topic_config("orders") == {"retention.ms": "5", "cleanup.policy": "compact"}
    code, _, image = alter(image, ("retention.ms", DELETE, None), ("segment.ms", DELETE, None))
    assert image.topic_config("orders") == {"cleanup.policy": "compact"}
    code, _, image = alter(image, ("cleanup.policy", DELETE, None))
    assert (TOPIC_RESOURCE, "orders") not in image.configs
    assert not [key for key in image.records if key.startswith("configs/")]


def test_lists_start_from_the_default(image: MetadataImage) -> None:
    _, _, image = alter(image, ("cleanup.policy", APPEND, "compact,delete"))
    assert image.topic_config("orders") == {"cleanup.policy": "delete,compact"}
    _, _, image = alter(image, ("cleanup.policy", SUBTRACT, "delete"))
    assert image.topic_config("orders") == {"cleanup.policy": "compact"}


def test_validate_only_and_unchanged_values_store_nothing(image: MetadataImage) -> None:
    code, _, same = alter(image, ("retention.ms", SET, "5"), validate_only=True)
    assert (code, same.records) == (ErrorCode.none, image.records)
    _, _, changed = alter(image, ("retention.ms", SET, "5"))
    request = alter(changed, ("retention.ms", SET, "5"))
    assert request[2].records == changed.records


def test_brokers(image: MetadataImage) -> None:
    code, _, image = alter(image, ("log.retention.ms", SET, "7"), kind=BROKER_RESOURCE, name="")
    assert code is ErrorCode.none
    code, _, image = alter(image, ("log.retention.ms", SET, "8"), kind=BROKER_RESOURCE, name="1")
    assert code is ErrorCode.none
    assert image.configs[BROKER_RESOURCE, ""] == {"log.retention.ms": "7"}
    assert image.configs[BROKER_RESOURCE, "1"] == {"log.retention.ms": "8"}


def test_groups_and_client_metrics(image: MetadataImage) -> None:
    code, _, image = alter(image, ("consumer.session.timeout.ms", SET, "50000"), kind=32, name="a/group 1")
    assert (code, image.configs[32, "a/group 1"]) == (
        ErrorCode.none,
        {"consumer.session.timeout.ms": "50000"},
    )
    code, _, image = alter(image, ("metrics", SET, "*"), kind=16, name="all")
    assert (code, image.configs[16, "all"]) == (ErrorCode.none, {"metrics": "*"})
    _, _, image = alter(image, ("metrics", DELETE, None), kind=16, name="all")
    assert (16, "all") not in image.configs


def test_the_bounds_of_groups_are_what_the_brokers_files_say(image: MetadataImage) -> None:
    configs = {"group.consumer.min.session.timeout.ms": "10000"}
    node = md.NodeRecord(node_id=1, incarnation_id="b", address="n1", configs=configs)
    image = image.apply(register_node(image, node).records, image.revision + 1)
    code, _, image = alter(image, ("consumer.session.timeout.ms", SET, "12000"), kind=32, name="g")
    assert code is ErrorCode.none
    code, _, _ = alter(image, ("consumer.session.timeout.ms", SET, "9999"), kind=32, name="g")
    assert code is ErrorCode.invalid_config


def test_what_nobody_knows_can_be_set_on_brokers_and_deleted_everywhere(image: MetadataImage) -> None:
    _, _, changed = alter(image, ("a.plugins.own", SET, "1"), kind=BROKER_RESOURCE, name="1")
    assert changed.configs[BROKER_RESOURCE, "1"] == {"a.plugins.own": "1"}
    for kind, name in ((2, "orders"), (4, "1"), (16, "m"), (32, "g")):
        code, _, after = alter(changed, ("a.plugins.own", DELETE, None), kind=kind, name=name)
        assert code is ErrorCode.none
        assert (kind, name) not in after.configs


@pytest.mark.parametrize(
    ("kind", "name", "operation", "code", "words"),
    [
        (2, "orders", ("retention.ms", SET, "soon"), ErrorCode.invalid_config, "whole number"),
        (2, "orders", ("nope", SET, "1"), ErrorCode.invalid_config, "Unknown topic config name: nope"),
        (2, "orders", ("retention.ms", APPEND, "1"), ErrorCode.invalid_config, "not a list"),
        (2, "orders", ("cleanup.policy", APPEND, "shred"), ErrorCode.invalid_config, "compact, delete"),
        (2, "orders", ("retention.ms", SET, None), ErrorCode.invalid_request, "Null value"),
        (2, "orders", ("retention.ms", 7, "1"), ErrorCode.invalid_request, "Unknown operations type 7"),
        (2, "orders", ("remote.storage.enable", SET, "true"), ErrorCode.invalid_config, "Tiered storage"),
        (2, "orders", ("min.compaction.lag.ms", SET, str(2**63 - 1)), ErrorCode.none, ""),
        (2, "nobody", ("retention.ms", SET, "1"), ErrorCode.unknown_topic_or_partition, "does not exist"),
        (2, "", ("retention.ms", SET, "1"), ErrorCode.invalid_request, "Default topic resources"),
        (2, "a b", ("retention.ms", SET, "1"), ErrorCode.invalid_topic_exception, "invalid"),
        (4, "x", ("log.retention.ms", SET, "1"), ErrorCode.invalid_request, "base 10"),
        (4, "9", ("log.retention.ms", SET, "1"), ErrorCode.invalid_request, "Unexpected broker id 9"),
        (4, "", ("num.partitions", SET, "3"), ErrorCode.invalid_request, "restart"),
        (
            4,
            "",
            ("listeners", SET, "PLAINTEXT://:1"),
            ErrorCode.invalid_request,
            "broker id must be specified",
        ),
        (4, "", ("nope", SET, "3"), ErrorCode.none, ""),
        (4, "", ("log.cleaner.threads", SET, "-1"), ErrorCode.invalid_request, "at least 0"),
        (4, "", ("log.cleaner.threads", APPEND, "1"), ErrorCode.invalid_config, "not a list"),
        (4, "1", ("num.io.threads", SET, "100"), ErrorCode.invalid_request, "at most twice"),
        (8, "1", ("root", SET, "DEBUG"), ErrorCode.invalid_request, "Log levels"),
        (16, "m", ("interval.ms", SET, "99"), ErrorCode.invalid_request, "between 100"),
        (16, "m", ("metrics", APPEND, "a"), ErrorCode.invalid_config, "not a list"),
        (16, "m", ("nope", SET, "1"), ErrorCode.invalid_request, "Unknown client metrics"),
        (16, "", ("metrics", SET, "a"), ErrorCode.invalid_request, "can't be empty"),
        (
            32,
            "g",
            ("consumer.session.timeout.ms", SET, "3"),
            ErrorCode.invalid_config,
            "greater than or equal",
        ),
        (32, "g", ("nope", SET, "3"), ErrorCode.invalid_config, "Unknown group config name"),
        (32, "", ("consumer.session.timeout.ms", SET, "45000"), ErrorCode.invalid_request, "Default group"),
        (77, "x", ("retention.ms", SET, "1"), ErrorCode.invalid_request, "Unknown resource type 77"),
    ],
)
def test_refusals(
    image: MetadataImage, kind: int, name: str, operation: Op, code: ErrorCode, words: str
) -> None:
    actual, message, after = alter(image, operation, kind=kind, name=name)
    assert actual is code
    assert words in message
    if code is not ErrorCode.none:
        assert after.records == image.records


def test_one_bad_change_undoes_the_resource_but_not_the_others(image: MetadataImage) -> None:
    bad = pb.ConfigResourceChange(
        resource_type=2,
        resource_name="orders",
        operations=[
            pb.ConfigOperation(name="retention.ms", value="5"),
            pb.ConfigOperation(name="segment.bytes", value="1"),
        ],
    )
    good = pb.ConfigResourceChange(
        resource_type=4, operations=[pb.ConfigOperation(name="log.retention.ms", value="7")]
    )
    decision = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[bad, good]))
    assert [r.error_code for r in decision.response.results] == [ErrorCode.invalid_config, 0]
    assert [record.key for record in decision.records] == ["configs/4/"]
    twice = alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[good, good]))
    assert {r.error_code for r in twice.response.results} == {int(ErrorCode.invalid_request)}


def test_lags_are_checked_against_each_other(image: MetadataImage) -> None:
    _, _, image = alter(image, ("max.compaction.lag.ms", SET, "10"))
    code, message, _ = alter(image, ("min.compaction.lag.ms", SET, "11"))
    assert code is ErrorCode.invalid_config
    assert "above max.compaction.lag.ms 10" in message
