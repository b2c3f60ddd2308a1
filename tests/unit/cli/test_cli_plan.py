"""From flags to the files of the services."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import UpOptions
from barnabas.cli.plan import SETTINGS_OF_UP, SHOWN_BY_BROKERS, plan_cluster
from barnabas.controller.config import ControllerConfig
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.kernel.config import ConfigError, load_config, property_name
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.storage.config import StorageConfig

OF_ADDRESSES = {"listeners", "advertised.listeners", "broker.rack"}
OF_THE_CLUSTER = {
    *("node.id", "gateway.id", "coordinator.id", "data.dir", "log.dirs", "log.level"),
    *("listeners", "listen.address", "http.address", "controllers", "ports.per.listener", "position"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "data")
    directory.open(1)
    try:
        yield directory
    finally:
        directory.close()


def plan(directory: DataDirectory, *overrides: str) -> dict[str, list[str]]:
    """The arguments of each service by its name."""
    options = UpOptions("127.0.0.1", 9092, directory.path, overrides=overrides)
    options.check()
    return {spec.name: list(spec.command[3:]) for stage in plan_cluster(options, directory) for spec in stage}


def test_overrides_reach_every_service_that_reads_them(directory: DataDirectory) -> None:
    services = plan(
        directory,
        "num.partitions=3",
        "fetch.max.bytes=2048",
        "group.max.size=7",
        "log.retention.hours=5",
        "log.cleaner.enable=false",
        "num.partitions=4",
    )
    storage = load_config(StorageConfig, services["storage-1"], {})
    assert (storage.fetch_max_bytes, storage.log_cleaner_enable) == (2048, False)
    told = {"num.partitions": "4", "group.max.size": "7", "log.retention.hours": "5"}
    assert told.items() <= storage.static_settings.items()
    assert load_config(ControllerConfig, services["controller"], {}).num_partitions == 4
    assert load_config(GatewayConfig, services["gateway-1"], {}).fetch_max_bytes == 2048
    assert load_config(CoordinatorConfig, services["coordinator-1"], {}).group_max_size == 7


def test_brokers_show_what_the_other_services_have_otherwise_than_kafka(directory: DataDirectory) -> None:
    services = plan(directory)
    differing = set()
    for name, config_type in (
        ("controller", ControllerConfig),
        ("gateway-1", GatewayConfig),
        ("coordinator-1", CoordinatorConfig),
    ):
        config = load_config(config_type, services[name], {})
        for field in dataclasses.fields(config):
            definition = BROKER_SETTINGS.get(property_name(field.name))
            if definition is not None and getattr(config, field.name) != definition.default_value():
                differing.add(definition.name)
    assert differing - OF_ADDRESSES == set(SHOWN_BY_BROKERS)
    storage = load_config(StorageConfig, services["storage-1"], {})
    assert set(SHOWN_BY_BROKERS) <= storage.static_settings.keys()
    assert storage.static_settings["group.initial.rebalance.delay.ms"] == "0"


def test_up_sets_nothing_else_than_it_says(directory: DataDirectory) -> None:
    """Beside what is the cluster's own: ids, addresses, directories, and what flags say."""
    services = plan(directory)
    config_types = {
        "controller": ControllerConfig,
        "storage-1": StorageConfig,
        "coordinator-1": CoordinatorConfig,
        "gateway-1": GatewayConfig,
    }
    differing = set()
    for name, config_type in config_types.items():
        config = load_config(config_type, services[name], {})
        for field in dataclasses.fields(config):
            if not field.metadata.get("others") and getattr(config, field.name) != field.default:
                differing.add(property_name(field.name))
    assert differing - OF_THE_CLUSTER == set(SETTINGS_OF_UP)


def test_what_kafka_takes_and_a_service_cannot_is_refused(directory: DataDirectory) -> None:
    with pytest.raises(ConfigError, match=r"offsets\.load\.buffer\.size=1"):
        plan(directory, "offsets.load.buffer.size=1")
