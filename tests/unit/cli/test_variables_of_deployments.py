"""No service that is started by our images and compose files warns of a variable that these gave it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas.canary.config import CanaryConfig
from barnabas.controller.config import ControllerConfig
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.host.config import BrokerConfig
from barnabas.kernel.config import unknown_variables
from barnabas.storage.config import StorageConfig

ROOT = Path(__file__).parents[3]
SERVICES: dict[str, Any] = {
    "gateway": GatewayConfig,
    "storage": StorageConfig,
    "controller": ControllerConfig,
    "coordinator": CoordinatorConfig,
    "canary": CanaryConfig,
    "broker": BrokerConfig,
}
COMPOSE_FILES = [ROOT / "deploy" / name for name in ("compose.yaml", "compose.brokers.yaml")]


def given(service: str) -> dict[str, str]:
    """The variables that start.sh and the compose files give to a service of this kind."""
    variables = re.findall(r"export (BARNABAS_\w+)=", (ROOT / "docker" / "start.sh").read_text())
    for file in COMPOSE_FILES:
        for name, entry in yaml.safe_load(file.read_text())["services"].items():
            if re.fullmatch(service + r"(-\d+)?", name):
                variables += entry.get("environment", {})
    return dict.fromkeys(variables, "")


@pytest.mark.parametrize("service", SERVICES)
def test_what_we_give_is_known(service: str) -> None:
    variables = given(service)
    assert any(name not in ("BARNABAS_HTTP_ADDRESS", "BARNABAS_LISTEN_ADDRESS") for name in variables)
    assert unknown_variables(SERVICES[service], variables) == []


@pytest.mark.parametrize("service", SERVICES)
def test_what_compose_files_and_scripts_are_told_is_known(service: str) -> None:
    """It may stand in the environment of a service that is started by hand."""
    files = [*COMPOSE_FILES, *(ROOT / "docker").glob("*.sh"), *(ROOT / "deploy").glob("*/*.sh")]
    asked = {name for file in files for name in re.findall(r"\$\{(BARNABAS_\w+)[:}-]", file.read_text())}
    assert {"BARNABAS_PORT_1", "BARNABAS_VERSION", "BARNABAS_ENGINE_DIR"} <= asked
    ours = {
        "BARNABAS_HTTP_ADDRESS",
        "BARNABAS_LOG_LEVEL",
        "BARNABAS_LOG_FORMAT",
        "BARNABAS_GROUP_INITIAL_REBALANCE_DELAY_MS",
        "BARNABAS_DEFAULT_REPLICATION_FACTOR",
        "BARNABAS_MIN_INSYNC_REPLICAS",
    }
    assert unknown_variables(SERVICES[service], dict.fromkeys(asked - ours, "")) == []
