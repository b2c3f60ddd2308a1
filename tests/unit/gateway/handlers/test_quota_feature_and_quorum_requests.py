"""Client quotas, SCRAM credentials, features and the quorum, as clients ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gateway_harness import Gateway, small_cluster

from barnabas.kernel.errors import ErrorCode
from barnabas.messages import controller_pb2 as pb
from barnabas.messages.metadata_pb2 import ClientQuotaRecord, FeatureRecord, MetadataRecord
from barnabas.metadata.client_quotas import QuotaEntity, client_quota_key, entity_parts
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import feature_key

API_VERSIONS, DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_SCRAM, DESCRIBE_QUORUM, UPDATE_FEATURES = (
    18,
    48,
    49,
    50,
    55,
    57,
)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2

ENTITIES: list[QuotaEntity] = [
    (("user", "a"),),
    (("user", None),),
    (("client-id", "c"), ("user", "a")),
    (("client-id", None),),
    (("ip", "1.2.3.4"),),
]


def quota_record(entity: QuotaEntity, values: Mapping[str, float]) -> MetadataRecord:
    record = ClientQuotaRecord(entity=entity_parts(entity), values=dict(values))
    return MetadataRecord(key=client_quota_key(entity), client_quota=record)


def feature_record(level: int) -> MetadataRecord:
    feature = FeatureRecord(name=METADATA_VERSION, level=level)
    return MetadataRecord(key=feature_key(METADATA_VERSION), feature=feature)


def with_quotas() -> Gateway:
    return Gateway([*small_cluster(), *(quota_record(entity, {"q": 2.5}) for entity in ENTITIES)])


async def described(
    *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> list[QuotaEntity]:
    body = {
        "components": [
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ],
        "strict": strict,
    }
    answer = await with_quotas().ask(DESCRIBE_QUOTAS, version, body)
    assert answer.error_code == 0, answer.error_message
    assert all(
        [(value.key, value.value) for value in entry.values] == [("q", 2.5)] for entry in answer.entries
    )
    return [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in answer.entries]


@pytest.mark.parametrize("version", [0, 1])
async def test_an_empty_filter_picks_everything(version: int) -> None:
    assert await described(version=version) == ENTITIES
    assert await described(strict=True, version=version) == []


async def test_filters() -> None:
    a, default_user, a_with_c, default_client, ip = ENTITIES
    assert await described(("user", EXACT, "a")) == [a, a_with_c]
    assert await described(("user", EXACT, "a"), strict=True) == [a]
    assert await described(("user", DEFAULT, None)) == [default_user]
    assert await described(("user", SPECIFIED, None)) == [a, default_user, a_with_c]
    assert await described(("user", SPECIFIED, None), strict=True) == [a, default_user]
    assert await described(("user", SPECIFIED, None), ("client-id", EXACT, "c")) == [a_with_c]
    assert await described(("client-id", DEFAULT, None)) == [default_client]
    assert await described(("ip", SPECIFIED, None)) == [ip]
    assert await described(("ip", EXACT, "9.9.9.9")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", SPECIFIED, None)], ErrorCode.invalid_request),
        ([("nope", SPECIFIED, None)], ErrorCode.unsupported_version),
        ([("user", EXACT, None)], ErrorCode.invalid_request),
        ([("user", DEFAULT, "a")], ErrorCode.invalid_request),
        ([("user", SPECIFIED, "a")], ErrorCode.invalid_request),
        ([("user", 3, None)], ErrorCode.invalid_request),
        ([("user", SPECIFIED, None), ("user", EXACT, "a")], ErrorCode.invalid_request),
        ([("user", SPECIFIED, None), ("ip", EXACT, "1.2.3.4")], ErrorCode.invalid_request),
    ],
)
async def test_filters_that_are_refused(components: list[tuple[str, int, Any]], code: ErrorCode) -> None:
    rows = [
        {"entity_type": kind, "match_type": match_type, "match": match}
        for kind, match_type, match in components
    ]
    answer = await with_quotas().ask(DESCRIBE_QUOTAS, 1, {"components": rows, "strict": False})
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


def quota_entry(
    name: str | None, *operations: tuple[str, float | None], kind: str = "user"
) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in operations],
    }


async def alter(gateway: Gateway, *entries: Any, version: int = 1, validate_only: bool = False) -> Any:
    return await gateway.ask(ALTER_QUOTAS, version, {"entries": entries, "validate_only": validate_only})


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_go_to_the_controller_and_the_answer_waits_for_the_image(version: int) -> None:
    gateway = Gateway()

    def store(message: pb.AlterClientQuotasRequest) -> pb.AlterClientQuotasResponse:
        (change,) = message.entries
        assert [(op.key, op.value, op.remove) for op in change.operations] == [
            ("q", 1.0, False),
            ("p", 0, True),
        ]
        gateway.metadata.apply(quota_record((("user", "u"),), {"q": 1.0}))
        return pb.AlterClientQuotasResponse(results=[pb.ResourceResult()])

    gateway.controller.answers["AlterClientQuotas"] = store
    answer = await alter(gateway, quota_entry("u", ("q", 1.0), ("p", None)), version=version)
    (entry,) = answer.entries
    assert entry.error_code == 0
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "u")]


async def test_each_entity_has_its_own_error_and_one_row() -> None:
    gateway = Gateway()
    results = [pb.ResourceResult(error_code=42, error_message="twice")] * 2 + [pb.ResourceResult()]
    gateway.controller.answers["AlterClientQuotas"] = lambda _: pb.AlterClientQuotasResponse(results=results)
    entries = (quota_entry("u", ("q", 1.0)), quota_entry("u", ("q", 2.0)), quota_entry(None, ("q", 2.0)))
    answer = await alter(gateway, *entries, validate_only=True)
    assert [(entry.entity[0].entity_name, entry.error_code) for entry in answer.entries] == [
        ("u", 42),
        (None, 0),
    ]


async def test_an_address_must_be_one() -> None:
    gateway = Gateway()
    gateway.controller.answers["AlterClientQuotas"] = lambda message: pb.AlterClientQuotasResponse(
        results=[pb.ResourceResult() for _ in message.entries]
    )
    rate = ("connection_creation_rate", 1.0)
    entries = [quota_entry(name, rate, kind="ip") for name in ("no such host!", "10.0.0.1", "::1", None)]
    answer = await alter(gateway, *entries, validate_only=True)
    assert [entry.error_code for entry in answer.entries] == [ErrorCode.invalid_request, 0, 0, 0]
    ((_, message, _),) = gateway.controller.calls
    assert len(message.entries) == 3, "the controller is not told of what is refused here"


async def test_without_a_controller_every_entity_fails() -> None:
    answer = await alter(Gateway(), quota_entry("u", ("q", 1.0)), quota_entry("v", ("q", 1.0)))
    assert [entry.error_code for entry in answer.entries] == [ErrorCode.not_controller] * 2


async def test_nobody_has_scram_credentials() -> None:
    gateway = Gateway()
    for users in (None, []):
        answer = await gateway.ask(DESCRIBE_SCRAM, 0, {"users": users})
        assert (answer.error_code, answer.results) == (0, ())
    answer = await gateway.ask(DESCRIBE_SCRAM, 0, {"users": [{"name": name} for name in ("a", "b", "b")]})
    assert [(result.user, result.error_code) for result in answer.results] == [
        ("a", ErrorCode.resource_not_found),
        ("b", ErrorCode.duplicate_resource),
    ]


async def test_features_by_version_of_api_versions() -> None:
    gateway = Gateway([*small_cluster(), feature_record(30)])
    software = {"client_software_name": "test", "client_software_version": "1"}
    answer = await gateway.ask(API_VERSIONS, 3, software)
    assert [(row.name, row.min_version, row.max_version) for row in answer.supported_features] == [
        (METADATA_VERSION, 7, 30)
    ]
    newest = await gateway.ask(API_VERSIONS, 4, software)
    assert {row.name for row in newest.supported_features} >= {METADATA_VERSION, "group.version"}
    for each in (answer, newest):
        assert [
            (row.name, row.min_version_level, row.max_version_level) for row in each.finalized_features
        ] == [(METADATA_VERSION, 30, 30)]
        assert each.finalized_features_epoch == gateway.metadata.image.revision


@pytest.mark.parametrize("version", [3, 4])
async def test_a_client_learns_from_the_features_which_transactions_there_are(version: int) -> None:
    """Java's goes by the newest epoch that it has heard of (KIP-890)."""
    gateway = Gateway([*small_cluster(), feature_record(30)])
    name = "transaction.version"
    gateway.metadata.apply(MetadataRecord(key=feature_key(name), feature=FeatureRecord(name=name, level=2)))
    software = {"client_software_name": "test", "client_software_version": "1"}
    answer = await gateway.ask(API_VERSIONS, version, software)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    assert levels[name] == 2
    assert answer.finalized_features_epoch == gateway.metadata.image.revision


async def test_the_connection_remembers_the_clients_software() -> None:
    gateway = Gateway()
    assert (gateway.client.software.name, gateway.client.software.version) == ("unknown", "unknown")
    await gateway.ask(
        API_VERSIONS, 3, {"client_software_name": "librdkafka", "client_software_version": "2.1"}
    )
    assert (gateway.client.software.name, gateway.client.software.version) == ("librdkafka", "2.1")
    await gateway.ask(API_VERSIONS, 3, {"client_software_name": "-", "client_software_version": "3"})
    assert gateway.client.software.name == "librdkafka", "a name that is refused is not remembered"


@pytest.mark.parametrize(
    ("version", "fields", "upgrade_type"),
    [
        (0, {"allow_downgrade": False}, 1),
        (0, {"allow_downgrade": True}, 2),
        (1, {"upgrade_type": 3}, 3),
        (2, {"upgrade_type": 1}, 1),
    ],
)
async def test_features_are_updated(version: int, fields: dict[str, Any], upgrade_type: int) -> None:
    gateway = Gateway()

    def store(message: pb.UpdateFeaturesRequest) -> pb.UpdateFeaturesResponse:
        (update,) = message.updates
        assert (update.name, update.level, update.upgrade_type) == (METADATA_VERSION, 29, upgrade_type)
        gateway.metadata.apply(feature_record(29))
        return pb.UpdateFeaturesResponse(result=pb.ResourceResult(), results=[pb.ResourceResult()])

    gateway.controller.answers["UpdateFeatures"] = store
    row = {"feature": METADATA_VERSION, "max_version_level": 29, **fields}
    answer = await gateway.ask(UPDATE_FEATURES, version, {"timeout": 1000, "feature_updates": [row]})
    assert answer.error_code == 0
    if version < 2:
        assert [(result.feature, result.error_code) for result in answer.results] == [(METADATA_VERSION, 0)]


@pytest.mark.parametrize("version", range(3))
async def test_a_refused_update_fails_as_a_whole(version: int) -> None:
    gateway = Gateway()
    refused = pb.ResourceResult(error_code=95, error_message="no")
    gateway.controller.answers["UpdateFeatures"] = lambda _: pb.UpdateFeaturesResponse(result=refused)
    row = {"feature": "f", "max_version_level": 1, "upgrade_type": 1}
    answer = await gateway.ask(UPDATE_FEATURES, version, {"timeout": 1000, "feature_updates": [row]})
    assert (answer.error_code, answer.error_message) == (95, "no")
    assert not getattr(answer, "results", ())


def quorum_body(*partitions: tuple[str, int]) -> dict[str, Any]:
    return {
        "topics": [
            {"topic_name": topic, "partitions": [{"partition_index": index}]} for topic, index in partitions
        ]
    }


def quorum_gateway() -> Gateway:
    voters = [
        pb.QuorumReplica(replica_id=3000, log_end_offset=9, last_fetch_timestamp_ms=5, address="host.a:1909"),
        pb.QuorumReplica(replica_id=3001, log_end_offset=9, last_caught_up_timestamp_ms=6, address="unix:/x"),
    ]
    observer = pb.QuorumReplica(
        replica_id=1, log_end_offset=8, last_fetch_timestamp_ms=-1, last_caught_up_timestamp_ms=-1
    )
    response = pb.DescribeQuorumResponse(
        leader_id=3000, leader_epoch=4, high_watermark=9, voters=voters, observers=[observer]
    )
    gateway = Gateway()
    gateway.controller.answers["DescribeQuorum"] = lambda _: response
    return gateway


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum(version: int) -> None:
    answer = await quorum_gateway().ask(DESCRIBE_QUORUM, version, quorum_body(("__cluster_metadata", 0)))
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (3000, 4, 9)
    assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [
        (3000, 9),
        (3001, 9),
    ]
    (observer,) = partition.observers
    assert (observer.replica_id, observer.log_end_offset) == (1, 8)
    if version >= 1:
        assert (observer.last_fetch_timestamp, observer.last_caught_up_timestamp) == (-1, -1)
    if version >= 2:
        listeners = [[(each.host, each.port) for each in node.listeners] for node in answer.nodes]
        assert listeners == [[("host.a", 1909)], []], "a unix socket has no host and port"


@pytest.mark.parametrize(
    "partitions",
    [
        [("orders", 0)],
        [("__cluster_metadata", 1)],
        [("__cluster_metadata", 0), ("__cluster_metadata", 0)],
        [("__cluster_metadata", 0), ("orders", 0)],
    ],
)
async def test_only_the_metadata_has_a_quorum(partitions: list[tuple[str, int]]) -> None:
    answer = await quorum_gateway().ask(DESCRIBE_QUORUM, 2, quorum_body(*partitions))
    assert [topic.topic_name for topic in answer.topics] == [topic for topic, _ in partitions]
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.unknown_topic_or_partition] * len(partitions)


async def test_without_a_controller_there_is_no_quorum_to_describe() -> None:
    answer = await Gateway().ask(DESCRIBE_QUORUM, 2, quorum_body(("__cluster_metadata", 0)))
    assert answer.error_code == ErrorCode.not_controller
