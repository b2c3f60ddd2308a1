"""From flags to the files of the services."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.child import ServiceSpec
from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import Advertise, UpOptions
from barnabas.cli.plan import SETTINGS_OF_UP, plan_cluster
from barnabas.controller.config import ControllerConfig
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.host.config import OF_ADDRESSES, BrokerConfig
from barnabas.kernel.config import ConfigError, load_config, property_name
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS
from barnabas.storage.config import StorageConfig

CONFIG_TYPES: dict[str, Any] = {
    "controller": ControllerConfig,
    "storage": StorageConfig,
    "coordinator": CoordinatorConfig,
    "gateway": GatewayConfig,
    "broker": BrokerConfig,
}
OF_THE_CLUSTER = {
    *("node.id", "gateway.id", "coordinator.id", "data.dir", "log.dirs", "log.level"),
    *("listeners", "listen.address", "http.address", "controllers", "ports.per.listener", "position"),
    "own.position.only",
}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "data")
    directory.open(1)
    try:
        yield directory
    finally:
        directory.close()


def plan(directory: DataDirectory, *overrides: str, **options: Any) -> list[ServiceSpec]:
    """Every service that would be started."""
    asked = UpOptions("127.0.0.1", 9092, directory.path, overrides=overrides, **options)
    asked.check()
    return [spec for stage in plan_cluster(asked, directory) for spec in stage]


@pytest.fixture(params=[False, True], ids=["together", "separate"])
def configs(request: pytest.FixtureRequest, directory: DataDirectory) -> Callable[..., dict[str, Any]]:
    """The config of each kind of service as its process would read it, whether several share a process or not."""

    def load(*overrides: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for spec in plan(directory, *overrides, separate=request.param):
            config = load_config(CONFIG_TYPES[spec.service], list(spec.arguments), {})
            if isinstance(config, BrokerConfig):
                found |= {
                    "gateway": config.gateway,
                    "storage": config.storage,
                    "coordinator": config.coordinator,
                }
            else:
                found[spec.service] = config
        return found

    return load


def test_overrides_reach_every_service_that_reads_them(configs: Callable[..., dict[str, Any]]) -> None:
    services = configs(
        "num.partitions=3",
        "fetch.max.bytes=2048",
        "group.max.size=7",
        "log.retention.hours=5",
        "log.cleaner.enable=false",
        "num.partitions=4",
    )
    storage = services["storage"]
    assert (storage.fetch_max_bytes, storage.log_cleaner_enable) == (2048, False)
    told = {"num.partitions": "4", "group.max.size": "7", "log.retention.hours": "5"}
    assert told.items() <= storage.static_settings.items()
    assert services["controller"].num_partitions == 4
    assert services["gateway"].fetch_max_bytes == 2048
    assert services["coordinator"].group_max_size == 7


def test_brokers_show_what_the_other_services_have_otherwise_than_kafka(
    configs: Callable[..., dict[str, Any]],
) -> None:
    services = configs()
    differing = set()
    for kind in ("controller", "gateway", "coordinator"):
        config = services[kind]
        for field in dataclasses.fields(config):
            definition = BROKER_SETTINGS.get(property_name(field.name))
            if definition is not None and getattr(config, field.name) != definition.default_value():
                differing.add(definition.name)
    assert differing - OF_ADDRESSES == OTHER_DEFAULTS.keys() | SETTINGS_OF_UP.keys()
    shown = services["storage"].static_settings
    assert OTHER_DEFAULTS.items() <= shown.items()
    assert shown["group.initial.rebalance.delay.ms"] == "0"
    assert shown["max.connections"] == str(services["gateway"].max_connections)
    assert not OF_ADDRESSES & shown.keys()


def test_the_table_of_other_defaults_is_what_services_by_themselves_have() -> None:
    differing = {}
    for config_type in (ControllerConfig, CoordinatorConfig, GatewayConfig):
        for field in dataclasses.fields(config_type):
            definition = BROKER_SETTINGS.get(property_name(field.name))
            if definition is None or definition.name in OF_ADDRESSES:
                continue
            if field.default != definition.default_value():
                differing[definition.name] = str(field.default)
    assert differing == OTHER_DEFAULTS


def test_what_is_asked_of_a_gateway_is_shown_by_its_broker(configs: Callable[..., dict[str, Any]]) -> None:
    services = configs("connections.max.idle.ms=5000", "max.connections=7")
    assert services["gateway"].connections_max_idle_ms == 5000
    shown = services["storage"].static_settings
    assert (shown["connections.max.idle.ms"], shown["max.connections"]) == ("5000", "7")


def test_what_is_asked_of_a_coordinator_is_shown_by_its_broker(
    configs: Callable[..., dict[str, Any]],
) -> None:
    asked = {
        "offsets.retention.minutes": "7",
        "group.consumer.assignors": "range",
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "transaction.max.timeout.ms": "60000",
        "transaction.two.phase.commit.enable": "true",
    }
    services = configs(*(f"{name}={value}" for name, value in asked.items()))
    coordinator = services["coordinator"]
    assert coordinator.offsets_retention_minutes == 7
    assert coordinator.group_consumer_assignors == ("range",)
    assert coordinator.transaction_two_phase_commit_enable
    assert asked.items() <= services["storage"].static_settings.items()


@pytest.mark.parametrize("is_separate", [False, True], ids=["together", "separate"])
def test_nodes_and_gateways_are_dealt_out_to_racks(directory: DataDirectory, is_separate: bool) -> None:
    racks: dict[str, dict[str, str]] = {"gateway": {}, "storage": {}}
    for spec in plan(directory, nodes=3, gateways=3, separate=is_separate, racks=("a", "b")):
        config = load_config(CONFIG_TYPES[spec.service], list(spec.arguments), {})
        parts = [config.gateway, config.storage] if isinstance(config, BrokerConfig) else [config]
        for part in parts:
            if isinstance(part, GatewayConfig):
                racks["gateway"][part.gateway_id] = part.broker_rack
            elif isinstance(part, StorageConfig):
                racks["storage"][str(part.node_id)] = part.broker_rack
    assert racks["storage"] == {"1": "a", "2": "b", "3": "a"}
    more = {} if is_separate else {"gateway-4": "b", "gateway-5": "a"}
    assert racks["gateway"] == {"gateway-1": "a", "gateway-2": "b", "gateway-3": "a", **more}


def test_up_sets_nothing_else_than_it_says(configs: Callable[..., dict[str, Any]]) -> None:
    """Beside what is the cluster's own: ids, addresses, directories, and what flags say."""
    differing = set()
    for config in configs().values():
        for field in dataclasses.fields(config):
            if not field.metadata.get("others") and getattr(config, field.name) != field.default:
                differing.add(property_name(field.name))
    assert differing - OF_THE_CLUSTER == set(SETTINGS_OF_UP)


@pytest.mark.parametrize(
    ("nodes", "overrides", "replicas", "needed"),
    [
        (1, (), 1, None),
        (2, (), 1, None),
        (3, (), 3, "2"),
        (5, (), 3, "2"),
        (3, ("default.replication.factor=1",), 1, "2"),
        (3, ("min.insync.replicas=1",), 3, "1"),
        (2, ("default.replication.factor=2", "min.insync.replicas=2"), 2, "2"),
    ],
)
@pytest.mark.parametrize("separate", [False, True], ids=["together", "separate"])
def test_three_nodes_replicate_unless_the_settings_say_otherwise(
    directory: DataDirectory,
    nodes: int,
    overrides: tuple[str, ...],
    replicas: int,
    needed: str | None,
    separate: bool,
) -> None:
    for spec in plan(directory, *overrides, nodes=nodes, separate=separate):
        config = load_config(CONFIG_TYPES[spec.service], list(spec.arguments), {})
        if isinstance(config, ControllerConfig):
            assert config.default_replication_factor == replicas
        elif isinstance(config, BrokerConfig | StorageConfig):
            storage = config.storage if isinstance(config, BrokerConfig) else config
            shown = storage.static_settings
            assert shown.get("min.insync.replicas") == needed
            assert int(shown.get("default.replication.factor", "1")) == replicas


def test_a_broker_is_a_gateway_at_its_own_port_and_a_coordinator(directory: DataDirectory) -> None:
    specs = {spec.name: spec for spec in plan(directory, nodes=3, gateways=2)}
    assert specs.keys() == {"gateway-4", "broker-1", "broker-2", "broker-3", "controller"}
    assert specs["broker-1"].aliases == ("storage-1", "gateway-1", "coordinator-1")
    assert specs["broker-2"].aliases == ("storage-2", "gateway-2", "coordinator-2")
    assert specs["broker-2"].hosted == (
        ("storage", "storage-2"),
        ("gateway", "gateway-2"),
        ("coordinator", "coordinator-2"),
    )
    brokers = [
        load_config(BrokerConfig, list(specs[f"broker-{number}"].arguments), {}) for number in (1, 2, 3)
    ]
    assert [broker.gateway.own_position_only for broker in brokers] == [0, 1, 2]
    assert [broker.storage.position for broker in brokers] == [0, 1, 2]
    assert [broker.gateway.gateway_id for broker in brokers] == ["gateway-1", "gateway-2", "gateway-3"]
    coordinators = [broker.coordinator for broker in brokers if broker.coordinator is not None]
    assert [each.coordinator_id for each in coordinators] == [
        "coordinator-1",
        "coordinator-2",
        "coordinator-3",
    ]
    for broker, coordinator in zip(brokers, coordinators, strict=True):
        assert coordinator.listen_address == broker.storage.listen_address
        assert coordinator.http_address == broker.storage.http_address
    other = load_config(GatewayConfig, list(specs["gateway-4"].arguments), {})
    assert (other.own_position_only, other.ports_per_listener) == (-1, 3)


def test_coordinators_beyond_one_are_processes_of_their_own(directory: DataDirectory) -> None:
    names = {spec.name for spec in plan(directory, nodes=2, coordinators=3)}
    assert names == {"broker-1", "broker-2", "coordinator-3", "coordinator-4", "controller"}
    separate = {spec.name: spec for spec in plan(directory, nodes=2, coordinators=2, separate=True)}
    assert {"coordinator-1", "coordinator-2"} < separate.keys()
    config = load_config(CoordinatorConfig, list(separate["coordinator-2"].arguments), {})
    assert (config.coordinator_id, config.listen_address[-19:]) == ("coordinator-2", "/coordinator-2.grpc")


def test_brokers_share_the_one_port(directory: DataDirectory) -> None:
    specs = plan(directory, nodes=2, advertise=Advertise.one)
    configs = [load_config(BrokerConfig, list(s.arguments), {}) for s in specs if s.service == "broker"]
    assert [config.gateway.own_position_only for config in configs] == [-1, -1]


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ({}, {"broker-1": (9092,)}),
        ({"nodes": 3}, {"broker-1": (9092,), "broker-2": (9093,), "broker-3": (9094,)}),
        ({"nodes": 3, "gateways": 2}, {}),
        ({"nodes": 3, "advertise": Advertise.one}, {}),
        ({"nodes": 1, "advertise": Advertise.one}, {"broker-1": (9092,)}),
        ({"nodes": 2, "separate": True}, {"gateway-1": (9092, 9093)}),
        ({"nodes": 2, "separate": True, "gateways": 2}, {}),
    ],
)
def test_ports_that_one_process_alone_serves(
    directory: DataDirectory, options: dict[str, Any], ports: dict[str, tuple[int, ...]]
) -> None:
    """The others are served by somebody while one is started again."""
    assert {spec.name: spec.ports for spec in plan(directory, **options) if spec.ports} == ports


@pytest.mark.parametrize(
    ("config_type", "variable"),
    [
        *((each, "CONTROLLERS") for each in (GatewayConfig, CoordinatorConfig, StorageConfig)),
        *((each, "ADVERTISED_ADDRESS") for each in (ControllerConfig, CoordinatorConfig, StorageConfig)),
        *((each, "LISTEN_ADDRESS") for each in (ControllerConfig, CoordinatorConfig, StorageConfig)),
        *((BrokerConfig, name) for name in ("CONTROLLERS", "ADVERTISED_ADDRESS", "LISTEN_ADDRESS")),
    ],
)
def test_an_address_without_a_port_is_refused(config_type: type[Any], variable: str) -> None:
    needed = {"NODE_ID": "1", "LOG_DIRS": "/a", "DATA_DIR": "/a", "CONTROLLERS": "127.0.0.1:1"}
    environ = {f"BARNABAS_{name}": text for name, text in {**needed, variable: "127.0.0.1"}.items()}
    name = variable.lower().replace("_", ".")
    with pytest.raises(ConfigError, match=f"^{name}=127.0.0.1: expected host:port or unix:/path$"):
        load_config(config_type, [], environ)


def test_a_default_that_no_topic_could_have_is_refused(directory: DataDirectory) -> None:
    with pytest.raises(ConfigError, match=r"default\.replication\.factor=0: must be at least 1"):
        plan(directory, "default.replication.factor=0")


def test_what_kafka_takes_and_a_service_cannot_is_refused(directory: DataDirectory) -> None:
    with pytest.raises(ConfigError, match=r"offsets\.load\.buffer\.size=1"):
        plan(directory, "offsets.load.buffer.size=1")
