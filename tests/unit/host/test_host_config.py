"""The settings of several services in one process, from one environment or file."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.host.config import BrokerConfig
from barnabas.kernel.config import ConfigError, load_config, to_properties, unknown_variables

NEEDED = {
    "BARNABAS_NODE_ID": "1",
    "BARNABAS_LOG_DIRS": "/a",
    "BARNABAS_CONTROLLERS": "127.0.0.1:1",
}


def test_variables_reach_the_part_that_knows_them_or_the_storage_node() -> None:
    environ = {
        **NEEDED,
        "BARNABAS_MAX_CONNECTIONS": "7",
        "BARNABAS_LOG_RETENTION_HOURS": "1",
        "BARNABAS_BROKER_RACK": "a",
    }
    config = load_config(BrokerConfig, [], environ)
    assert (config.gateway.max_connections, config.gateway.broker_rack, config.storage.broker_rack) == (
        7,
        "a",
        "a",
    )
    shown = config.storage.static_settings
    assert (shown["max.connections"], shown["log.retention.hours"]) == ("7", "1")
    assert unknown_variables(BrokerConfig, {**environ, "BARNABAS_MAX_CONNECTION": "7"}) == [
        "BARNABAS_MAX_CONNECTION"
    ]


def test_a_gateway_with_kafkas_default_is_shown_so() -> None:
    config = load_config(BrokerConfig, [], {**NEEDED, "BARNABAS_MAX_CONNECTIONS": "2147483647"})
    assert config.gateway.max_connections == 2147483647
    assert config.storage.static_settings["max.connections"] == "2147483647"
    assert config.storage.static_settings["queued.max.request.bytes"] == "268435456"


def test_there_is_no_coordinator_unless_its_id_is_set() -> None:
    """Its settings are the node's then, which shows them."""
    config = load_config(BrokerConfig, [], {**NEEDED, "BARNABAS_GROUP_MAX_SIZE": "7"})
    assert config.coordinator is None
    assert config.storage.broker_settings["group.max.size"] == "7"


def test_settings_that_only_a_coordinator_has_are_refused_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("coordinator.load.wait.ms=5\n")
    with pytest.raises(ConfigError, match=r"Unknown broker setting coordinator\.load\.wait\.ms"):
        load_config(BrokerConfig, ["--config", str(file)], NEEDED)
    file.write_text("coordinator.load.wait.ms=5\ncoordinator.id=c\n")
    assert load_config(BrokerConfig, ["--config", str(file)], NEEDED).coordinator is not None


def test_a_variable_makes_the_broker_a_coordinator() -> None:
    environ = {
        **NEEDED,
        "BARNABAS_COORDINATOR_ID": "c",
        "BARNABAS_GROUP_MAX_SIZE": "7",
        "BARNABAS_GROUP_CONSUMER_ASSIGNORS": "range",
        "BARNABAS_COORDINATOR_LOAD_WAIT_MS": "5",
    }
    config = load_config(BrokerConfig, [], environ)
    coordinator = config.coordinator
    assert coordinator is not None
    assert (coordinator.coordinator_id, coordinator.coordinator_load_wait_ms) == ("c", 5)
    assert coordinator.group_max_size == 7
    assert coordinator.controllers == config.storage.controllers
    shown = config.storage.static_settings
    assert (shown["group.max.size"], shown["group.consumer.assignors"]) == ("7", "range")
    assert "coordinator.load.wait.ms" not in shown, "Kafka has no such setting"
    assert unknown_variables(BrokerConfig, environ) == []


def test_a_file_makes_the_broker_a_coordinator(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("coordinator.id=c\nnode.id=1\nlog.dirs=/a\ncontrollers=127.0.0.1:1\ngroup.max.size=7\n")
    config = load_config(BrokerConfig, ["--config", str(file)], {"BARNABAS_GROUP_MAX_SIZE": "8"})
    assert config.coordinator is not None
    assert (config.coordinator.coordinator_id, config.coordinator.group_max_size) == ("c", 8)
    assert config.storage.static_settings["group.max.size"] == "8"
    file.write_text(to_properties(config))
    assert load_config(BrokerConfig, ["--config", str(file)], {}) == config


def test_a_coordinator_is_where_its_node_is() -> None:
    """By itself it would have an address of its own."""
    environ = {**NEEDED, "BARNABAS_COORDINATOR_ID": "c", "BARNABAS_ADVERTISED_ADDRESS": "n:2"}
    config = load_config(BrokerConfig, [], environ)
    assert config.coordinator is not None
    assert config.coordinator.listen_address == config.storage.listen_address
    assert config.coordinator.listen_address != CoordinatorConfig().listen_address
    assert config.coordinator.advertised_address == "n:2"


def test_a_coordinator_needs_a_port_that_is_known_before() -> None:
    environ = {**NEEDED, "BARNABAS_LISTEN_ADDRESS": "127.0.0.1:0"}
    assert load_config(BrokerConfig, [], environ).storage.listen_address == "127.0.0.1:0"
    with pytest.raises(ConfigError, match=r"^listen\.address=127\.0\.0\.1:0: name a port, .*$"):
        load_config(BrokerConfig, [], {**environ, "BARNABAS_COORDINATOR_ID": "c"})
    path = {**NEEDED, "BARNABAS_LISTEN_ADDRESS": "unix:/b:0", "BARNABAS_COORDINATOR_ID": "c"}
    assert load_config(BrokerConfig, [], path).coordinator is not None


def test_what_a_coordinator_cannot_have_is_refused() -> None:
    environ = {**NEEDED, "BARNABAS_COORDINATOR_ID": "c", "BARNABAS_OFFSETS_LOAD_BUFFER_SIZE": "1"}
    with pytest.raises(ConfigError, match=r"^offsets\.load\.buffer\.size=1: must be at least 1024$"):
        load_config(BrokerConfig, [], environ)
