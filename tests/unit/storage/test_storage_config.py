"""A storage node's settings: from variables as from a file, and what clients are shown where nobody set anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.kernel.config import ConfigError, load_config, unknown_variables
from barnabas.kernel.variables import is_of_others, variable_of
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS
from barnabas.storage.config import StorageConfig

NEEDED: Mapping[str, str] = {
    "BARNABAS_NODE_ID": "1",
    "BARNABAS_LOG_DIRS": "/a",
    "BARNABAS_CONTROLLERS": "127.0.0.1:1",
}


def load(variables: Mapping[str, str], *argv: str) -> StorageConfig:
    return load_config(StorageConfig, argv, {**NEEDED, **variables})


def test_variables_are_broker_settings_too_and_win(tmp_path: Path) -> None:
    file = tmp_path / "storage.properties"
    file.write_text("message.max.bytes=7000\nlog.roll.hours=3\n")
    variables = {
        "BARNABAS_LOG_RETENTION_HOURS": "1",
        "BARNABAS_MESSAGE_MAX_BYTES": "5000",
        "BARNABAS_LOG_FLUSH_INTERVAL_MESSAGES": "1",
    }
    config = load(variables, "--config", str(file))
    assert config.broker_settings == {
        "message.max.bytes": "5000",
        "log.roll.hours": "3",
        "log.retention.hours": "1",
        "log.flush.interval.messages": "1",
    }
    assert config.broker_settings.items() <= config.static_settings.items()
    assert unknown_variables(StorageConfig, {**NEEDED, **variables}) == []


@pytest.mark.parametrize(
    ("variable", "text"),
    [("LOG_RETENTION_HOURS", "soon"), ("LOG_RETENTION_HOURS", "0"), ("NUM_PARTITIONS", "0")],
)
def test_a_variable_is_checked_as_the_file_is(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=variable.lower().replace("_", ".")):
        load({f"BARNABAS_{variable}": text})


def test_a_name_that_nobody_knows_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "storage.properties"
    file.write_text("log.retention.hour=3\n")
    with pytest.raises(
        ConfigError, match=rf"^{file}: Unknown broker setting log\.retention\.hour: did you mean"
    ):
        load({}, "--config", str(file))
    file.write_text("log.retention.hours=3\n")
    with pytest.raises(ConfigError, match=r"^Invalid value soon for configuration log\.roll\.hours"):
        load({"BARNABAS_LOG_ROLL_HOURS": "soon"}, "--config", str(file))


def test_every_broker_setting_has_a_variable_of_its_own() -> None:
    variables = {variable_of(name) for name in BROKER_SETTINGS}
    assert len(variables) == len(BROKER_SETTINGS)
    assert not {variable for variable in variables if is_of_others(variable)}


def test_a_misspelt_variable_is_told() -> None:
    environ = {
        **NEEDED,
        "BARNABAS_LOG_RETENTION_HOUR": "1",
        "BARNABAS_GATEWAY_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    }
    assert unknown_variables(StorageConfig, environ) == ["BARNABAS_LOG_RETENTION_HOUR"]


def test_a_node_shows_the_defaults_of_the_services_beside_it() -> None:
    assert OTHER_DEFAULTS.items() <= load({}).static_settings.items()
    assert load({"BARNABAS_MAX_CONNECTIONS": "7"}).static_settings["max.connections"] == "7"
    kafkas = BROKER_SETTINGS["max.connections"].default
    assert kafkas is not None
    assert load({"BARNABAS_MAX_CONNECTIONS": kafkas}).static_settings["max.connections"] == kafkas


@pytest.mark.parametrize(
    ("cordoned", "problem"),
    [("/a", ""), ("/a, /b", ""), ("*", ""), ("", ""), ("*,/a", "alone"), ("/a,/c", "names /c")],
)
def test_cordoned_directories_are_log_directories(cordoned: str, problem: str) -> None:
    def config() -> StorageConfig:
        return StorageConfig(
            node_id=1,
            log_dirs=("/a", "/b"),
            controllers=("c:1",),
            broker_settings={"cordoned.log.dirs": cordoned},
        )

    if problem:
        with pytest.raises(ConfigError, match=problem):
            config()
    else:
        config()
