"""GetTelemetrySubscriptions and PushTelemetry as clients send them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from gateway_harness import INSTANCE_ID, Gateway, config_record, small_cluster
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.gateway import limits
from barnabas.gateway.request import Client
from barnabas.gateway.telemetry.export import TelemetryForwarder
from barnabas.kernel.errors import ErrorCode
from barnabas.records.compression import Compression, compress

API_VERSIONS, GET, PUSH = 18, 71, 72
CLIENT_METRICS = 16
INTERVAL_MS = 1000


class Taken(TelemetryForwarder):
    """A forwarder that keeps what it is offered."""

    def __init__(self, room: int = 1000) -> None:
        self.messages: list[bytes] = []
        self._room = room

    def offer(self, message: bytes) -> bool:
        if len(self.messages) >= self._room:
            return False
        self.messages.append(message)
        return True


def gateway_with(forwarder: Taken | None = None, **settings: str) -> Gateway:
    values = {"metrics": "*", "interval.ms": str(INTERVAL_MS), **settings}
    return Gateway([*small_cluster(), config_record(CLIENT_METRICS, "all", values)], forwarder=forwarder)


async def get(gateway: Gateway, instance: bytes | None = None) -> Any:
    return await gateway.ask(GET, 0, {"client_instance_id": instance})


async def push(gateway: Gateway, subscription_id: int, **fields: Any) -> int:
    body = {
        "client_instance_id": INSTANCE_ID,
        "subscription_id": subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics(),
        **fields,
    }
    return int((await gateway.ask(PUSH, 0, body)).error_code)


def metrics(name: str = "org.apache.kafka.m", **attributes: str) -> bytes:
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    for key, value in attributes.items():
        resource_metrics.resource.attributes.add(key=key).value.string_value = value
    resource_metrics.scope_metrics.add().metrics.add(name=name).sum.data_points.add(as_int=7)
    return data.SerializeToString()


async def test_a_new_instance_gets_an_id_and_its_subscription() -> None:
    answer = await get(gateway_with())
    assert answer.error_code == 0
    assert answer.client_instance_id.bytes == INSTANCE_ID
    assert answer.requested_metrics == ("*",)
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    assert answer.push_interval.total_seconds() * 1000 == INTERVAL_MS
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (1_048_576, True)


async def test_an_instance_keeps_its_id() -> None:
    own = bytes(range(16))
    assert (await get(gateway_with(), own)).client_instance_id.bytes == own


async def test_matching_by_the_connections_software_and_address() -> None:
    match = "client_software_name=raw,client_software_version=1.0,client_source_address=10\\.1\\.2\\.3,client_id=test"
    gateway = gateway_with(match=match)
    assert (await get(gateway)).requested_metrics == ()
    await gateway.ask(API_VERSIONS, 3, {"client_software_name": "raw", "client_software_version": "1.0"})
    assert (await get(gateway)).requested_metrics == ("*",), "a changed assignment need not wait"


async def test_asking_too_early() -> None:
    gateway = gateway_with()
    assert (await get(gateway, INSTANCE_ID)).error_code == 0
    assert (await get(gateway, INSTANCE_ID)).error_code == ErrorCode.throttling_quota_exceeded
    gateway.clock.advance(INTERVAL_MS)
    assert (await get(gateway, INSTANCE_ID)).error_code == 0
    assert gateway.parts.telemetry.counts.throttled == 1


async def test_a_push_goes_out_marked_with_where_it_came_from() -> None:
    taken = Taken()
    gateway = gateway_with(taken)
    subscription = (await get(gateway)).subscription_id
    lie = metrics(client_id="somebody else", group_id="g")
    assert await push(gateway, subscription, metrics=lie) == 0
    (message,) = taken.messages
    (resource_metrics,) = ExportMetricsServiceRequest.FromString(message).resource_metrics
    attributes = {each.key: each.value.string_value for each in resource_metrics.resource.attributes}
    assert attributes == {
        "group_id": "g",
        "client_id": "test",
        "client_instance_id": "aW5zdGFuY2Utb2YtdGVzdA",
        "client_software_name": "unknown",
        "client_software_version": "unknown",
        "client_source_address": "10.1.2.3",
        "client_source_port": "0",
        "principal": "User:ANONYMOUS",
        "gateway_id": "gateway-1",
    }
    assert resource_metrics.scope_metrics[0].metrics[0].name == "org.apache.kafka.m"


@pytest.mark.parametrize("compression", list(Compression))
async def test_every_compression(compression: Compression) -> None:
    taken = Taken()
    gateway = gateway_with(taken)
    subscription = (await get(gateway)).subscription_id
    name = "n" * 40_000  # more than is read on the event loop, where it is not compressed
    data = compress(compression, metrics(name))
    assert await push(gateway, subscription, compression_type=int(compression), metrics=data) == 0
    (message,) = taken.messages
    request = ExportMetricsServiceRequest.FromString(message)
    assert request.resource_metrics[0].scope_metrics[0].metrics[0].name == name


async def test_pushing_too_early() -> None:
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    assert await push(gateway, subscription) == 0, "the first push may follow at once"
    assert await push(gateway, subscription) == ErrorCode.throttling_quota_exceeded
    gateway.clock.advance(INTERVAL_MS)
    assert await push(gateway, subscription) == 0


async def test_the_last_push_may_come_at_any_time_and_nothing_after_it() -> None:
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    assert await push(gateway, subscription) == 0
    assert await push(gateway, subscription, terminating=True) == 0
    gateway.clock.advance(INTERVAL_MS)
    assert await push(gateway, subscription, terminating=True) == ErrorCode.invalid_request


async def test_a_push_through_another_gateway_is_accepted() -> None:
    subscription = (await get(gateway_with())).subscription_id
    other = Taken()
    assert await push(gateway_with(other), subscription) == 0
    assert len(other.messages) == 1


async def test_an_unknown_subscription_lets_the_client_ask_again_at_once() -> None:
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    assert await push(gateway, subscription + 1) == ErrorCode.unknown_subscription_id
    assert (await get(gateway, INSTANCE_ID)).error_code == 0
    assert await push(gateway, subscription) == 0
    assert gateway.parts.telemetry.counts.unknown_subscriptions == 1


async def test_a_changed_resource_makes_the_old_subscription_unknown() -> None:
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    gateway.metadata.apply(config_record(CLIENT_METRICS, "all", {"metrics": "org.a", "interval.ms": "1000"}))
    assert await push(gateway, subscription) == ErrorCode.unknown_subscription_id
    assert (await get(gateway, INSTANCE_ID)).requested_metrics == ("org.a",)


async def test_pushes_that_are_refused() -> None:
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    too_large = bytes(1_048_577)
    for fields, code in (
        ({"client_instance_id": None}, ErrorCode.invalid_request),
        ({"client_instance_id": bytes(15) + b"\1"}, ErrorCode.invalid_request),
        ({"compression_type": 5}, ErrorCode.unsupported_compression_type),
        ({"metrics": too_large}, ErrorCode.telemetry_too_large),
        ({"metrics": b"no metrics at all"}, ErrorCode.invalid_record),
        ({"metrics": b"not zstd", "compression_type": 4}, ErrorCode.invalid_record),
    ):
        assert await push(gateway, subscription, **fields) == code, fields
        gateway.clock.advance(INTERVAL_MS)


@pytest.mark.parametrize(
    "compression", [Compression.GZIP, Compression.ZSTD, Compression.LZ4, Compression.SNAPPY]
)
async def test_a_bomb_is_not_unfolded(compression: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_UNFOLDED_BYTES_MAX", 100_000)
    gateway = gateway_with(Taken())
    subscription = (await get(gateway)).subscription_id
    bomb = compress(compression, bytes(1_000_000))
    assert (
        await push(gateway, subscription, metrics=bomb, compression_type=int(compression))
        == ErrorCode.invalid_record
    )


async def test_a_push_without_metrics_is_nothing_to_forward() -> None:
    taken = Taken()
    gateway = gateway_with(taken)
    assert await push(gateway, (await get(gateway)).subscription_id, metrics=b"") == 0
    assert not taken.messages


async def test_a_full_queue_drops_and_the_client_does_not_notice() -> None:
    gateway = gateway_with(Taken(room=0))
    assert await push(gateway, (await get(gateway)).subscription_id) == 0
    assert gateway.parts.telemetry.counts.dropped == Counter(queue_full=1)


async def test_the_requests_are_shown_only_when_metrics_go_somewhere() -> None:
    software = {"client_software_name": "raw", "client_software_version": "1"}
    for gateway, shown in ((gateway_with(), False), (gateway_with(Taken()), True)):
        answer = await gateway.ask(API_VERSIONS, 3, software)
        assert ({GET, PUSH} <= {row.api_key for row in answer.api_keys}) == shown
        subscription = (await get(gateway)).subscription_id
        assert await push(gateway, subscription) == 0, "served in any case, as by Kafka"


async def test_no_more_instances_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_INSTANCES_MAX", 3)
    gateway = gateway_with()
    for number in range(10):
        await get(gateway, bytes(15) + bytes([number + 2]))
    assert gateway.parts.telemetry.counts.instances == 3


async def test_silent_instances_are_forgotten() -> None:
    gateway = gateway_with()
    await get(gateway, INSTANCE_ID)
    gateway.clock.advance(limits.TELEMETRY_INSTANCE_EXPIRY_MS)
    await get(gateway, bytes(range(16)))
    assert gateway.parts.telemetry.counts.instances == 1


async def test_each_connection_has_its_own_instance() -> None:
    gateway = gateway_with()
    assert (await get(gateway, INSTANCE_ID)).error_code == 0
    gateway.client = Client(2, "10.1.2.3", "127.0.0.1", gateway.client.listener)
    assert (await get(gateway, INSTANCE_ID)).error_code == 0
