"""AlterConfigs as a pure decision: the settings named are all that a resource has afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.configs import replace_configs
from barnabas.controller.core.nodes import register_node
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, partition_key, topic_key


def cluster() -> MetadataImage:
    empty = MetadataImage()
    node = md.NodeRecord(node_id=1, incarnation_id="a", address="n1")
    partition = md.PartitionRecord(topic_id=b"t" * 16, leader=1, replicas=[1], isr=[1])
    topic = md.TopicRecord(name="orders", topic_id=b"t" * 16, partition_count=1)
    records = [
        md.MetadataRecord(key=partition_key(b"t" * 16, 0), partition=partition),
        md.MetadataRecord(key=topic_key("orders"), topic=topic),
    ]
    return empty.apply(register_node(empty, node).records, 1).apply(records, 2)


def replaced(kind: int, name: str, *configs: tuple[str, str | None]) -> pb.ReplacedConfig:
    entries = [pb.ConfigEntry(name=key, value=value) for key, value in configs]
    return pb.ReplacedConfig(resource_type=kind, resource_name=name, configs=entries)


def replace(
    image: MetadataImage, *resources: pb.ReplacedConfig, validate_only: bool = False
) -> tuple[list[int], MetadataImage]:
    decision = replace_configs(
        image, pb.AlterConfigsRequest(resources=resources, validate_only=validate_only)
    )
    codes = [result.error_code for result in decision.response.results]
    return codes, image.apply(decision.records, image.revision + 1)


def test_what_is_not_named_goes_back_to_its_default() -> None:
    first = replaced(TOPIC_RESOURCE, "orders", ("retention.ms", "5"), ("cleanup.policy", "compact"))
    codes, image = replace(cluster(), first)
    assert codes == [0]
    assert image.topic_config("orders") == {"retention.ms": "5", "cleanup.policy": "compact"}
    _, same = replace(image, first)
    assert same.records == image.records
    _, same = replace(image, replaced(TOPIC_RESOURCE, "orders"), validate_only=True)
    assert same.records == image.records
    _, image = replace(image, replaced(TOPIC_RESOURCE, "orders", ("segment.ms", "7")))
    assert image.topic_config("orders") == {"segment.ms": "7"}
    _, image = replace(image, replaced(TOPIC_RESOURCE, "orders"))
    assert (TOPIC_RESOURCE, "orders") not in image.configs


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (replaced(2, "orders", ("retention.ms", None)), ErrorCode.invalid_request),
        (replaced(2, "orders", ("retention.ms", "1"), ("retention.ms", "2")), ErrorCode.invalid_request),
        (replaced(2, "orders", ("nonsense", "1")), ErrorCode.invalid_config),
        (replaced(2, "orders", ("retention.ms", "x")), ErrorCode.invalid_config),
        (replaced(2, "nothing"), ErrorCode.unknown_topic_or_partition),
        (replaced(2, ""), ErrorCode.invalid_request),
        (replaced(4, "9"), ErrorCode.invalid_request),
        (replaced(4, "1", ("log.retention.ms", "x")), ErrorCode.invalid_request),
        (replaced(16, "m", ("nonsense", "1")), ErrorCode.invalid_request),
        (replaced(32, "g", ("nonsense", "1")), ErrorCode.invalid_config),
        (replaced(4, "1", ("node.id", "2")), ErrorCode.invalid_request),
        (replaced(8, "1"), ErrorCode.invalid_request),
    ],
)
def test_refused(resource: pb.ReplacedConfig, code: ErrorCode) -> None:
    image = cluster()
    good = replaced(BROKER_RESOURCE, "", ("log.retention.ms", "9"))
    codes, after = replace(image, resource, good)
    assert codes == [code, 0]
    assert after.configs == {(BROKER_RESOURCE, ""): {"log.retention.ms": "9"}}


def test_each_resource_once() -> None:
    twice = replaced(TOPIC_RESOURCE, "orders", ("retention.ms", "5"))
    codes, after = replace(cluster(), twice, twice)
    assert (codes, after.configs) == ([ErrorCode.invalid_request] * 2, {})


settings = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "flush.ms"]), st.integers(1, 9).map(str)
)


@given(settings, settings)
def test_nothing_of_the_settings_before_is_left(before: dict[str, str], after: dict[str, str]) -> None:
    _, image = replace(cluster(), replaced(TOPIC_RESOURCE, "orders", *before.items()))
    _, image = replace(image, replaced(TOPIC_RESOURCE, "orders", *after.items()))
    assert image.topic_config("orders") == after
