"""The settings of a gateway and a storage node in one process, from one environment."""

from __future__ import annotations

from barnabas.host.config import BrokerConfig
from barnabas.kernel.config import load_config, unknown_variables

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
