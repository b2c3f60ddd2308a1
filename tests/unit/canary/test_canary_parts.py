"""The canary's settings, addresses, records and metrics."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from barnabas.canary.addresses import resolve
from barnabas.canary.config import CanaryConfig
from barnabas.canary.core.ledger import RecordId
from barnabas.canary.metrics import CanaryMetrics
from barnabas.canary.record import decode, encode
from barnabas.kernel.config import ConfigError, load_config


def test_a_record_is_known_again() -> None:
    record = RecordId("gateway-1:9092", 7)
    assert decode("run", encode("run", record)) == record


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"[]", b"{}", b'{"run": "run"}', encode("other", RecordId("a", 1))]
)
def test_what_others_wrote_is_none_of_ours(value: bytes | None) -> None:
    assert decode("run", value) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"BOOTSTRAP_SERVERS": ""}, "bootstrap.servers is empty"),
        ({"BOOTSTRAP_SERVERS": "one,two:9092"}, "bootstrap.servers=one: expected host:port"),
        ({"BOOTSTRAP_SERVERS": "one:0"}, "bootstrap.servers=one:0: expected host:port"),
        ({"BOOTSTRAP_SERVERS": "one:65536"}, "bootstrap.servers=one:65536: expected host:port"),
        ({"TIMEOUT_MS": "1"}, "timeout.ms=1: must be at least 100"),
        ({"LOSS_MS": "1000"}, "loss.ms=1000 is below timeout.ms=5000"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, str], complaint: str) -> None:
    environ = {f"BARNABAS_{name}": value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=complaint):
        load_config(CanaryConfig, [], environ)


def test_other_settings_are_the_client_librarys(tmp_path: Any) -> None:
    file = tmp_path / "canary.properties"
    file.write_text("bootstrap.servers=one:1,two:2\nsecurity.protocol=ssl\n")
    config = load_config(CanaryConfig, ["--config", str(file)], {})
    assert config.bootstrap_servers == ("one:1", "two:2")
    assert config.client_settings == {"security.protocol": "ssl"}


NAMES = {
    "one": ["10.0.0.1"],
    "pods": ["10.0.0.3", "10.0.0.2"],
    "six": ["fd00::1", "fd00::2"],
    "both": ["::1", "127.0.0.1"],
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(self: object, host: str, port: object, **_: object) -> list[Any]:
        if host not in NAMES:
            raise socket.gaierror(host)
        return [(0, 0, 0, "", (address, 0)) for address in NAMES[host]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("servers", "gateways"),
    [
        (["one:1"], ["one:1"]),
        (["pods:9"], ["10.0.0.2:9", "10.0.0.3:9"]),
        (["six:9"], ["[fd00::1]:9", "[fd00::2]:9"]),
        (["both:9"], ["both:9"]),
        (["one:1", "gone:2"], ["one:1", "gone:2"]),
    ],
)
async def test_each_address_of_a_name_is_a_gateway(servers: list[str], gateways: list[str]) -> None:
    assert await resolve(servers) == gateways


@pytest.mark.usefixtures("names")
async def test_while_no_name_can_be_looked_up_gateways_stay() -> None:
    assert await resolve(["gone:1"], ["10.0.0.2:1"]) == ["10.0.0.2:1"]
    assert await resolve(["gone:1"]) == ["gone:1"]


def test_counters_of_a_gateway_start_at_zero_and_go_with_it() -> None:
    registry = CollectorRegistry()
    metrics = CanaryMetrics(registry)
    metrics.add_gateway("one:1")
    for operation in ("produce", "fetch"):
        labels = {"gateway": "one:1", "operation": operation}
        assert registry.get_sample_value("barnabas_canary_attempts_total", labels) == 0
        assert registry.get_sample_value("barnabas_canary_failures_total", labels) == 0
    assert registry.get_sample_value("barnabas_canary_lost_records_total") == 0
    metrics.produce_failed("one:1")
    metrics.produced("one:1", 0.002)
    labels = {"gateway": "one:1", "operation": "produce"}
    assert registry.get_sample_value("barnabas_canary_attempts_total", labels) == 2
    metrics.freshness_seconds.labels("one:1").set(1)
    metrics.remove_gateway("one:1")
    assert b"one:1" not in generate_latest(registry)
