"""A setting that is said to have an effect is read by the service that is said to read it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import pytest

from barnabas.controller.config import ControllerConfig
from barnabas.controller.core.elections import UNCLEAN_ELECTION
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.kernel.config import property_name
from barnabas.log.config import LogConfig
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.settings import effects
from barnabas.metadata.topic_settings import TOPIC_SETTINGS
from barnabas.storage.config import StorageConfig
from barnabas.storage.replica.topic_settings import THROTTLED_FIELDS

SERVICES: Final = Path(__file__).parents[4] / "services" / "barnabas"

READERS: Final = {
    "storage": (effects.STORAGE, StorageConfig),
    "controller": (effects.CONTROLLER, ControllerConfig),
    "gateway": (effects.GATEWAY, GatewayConfig),
    "coordinator": (effects.COORDINATOR, CoordinatorConfig),
}


def fields_of(config_type: type) -> set[str]:
    return {property_name(field.name) for field in dataclasses.fields(config_type)}


@pytest.mark.parametrize("service", READERS)
def test_each_is_a_setting_of_the_service_or_read_from_the_metadata(service: str) -> None:
    names, config_type = READERS[service]
    source = "".join(path.read_text() for path in sorted((SERVICES / service).rglob("*.py")))
    assert names <= BROKER_SETTINGS.keys()
    assert [name for name in names - fields_of(config_type) if f'"{name}"' not in source] == []


@pytest.mark.parametrize("service", READERS)
def test_each_of_kafkas_settings_that_a_service_has_is_said_to_have_an_effect(service: str) -> None:
    names, config_type = READERS[service]
    assert (fields_of(config_type) & BROKER_SETTINGS.keys()) - names == set()


def test_what_topics_obey_is_what_the_log_leaders_and_elections_read() -> None:
    obeyed = {property_name(field.name) for field in dataclasses.fields(LogConfig)}
    assert obeyed | {"min.insync.replicas", UNCLEAN_ELECTION} | THROTTLED_FIELDS.keys() == effects.TOPIC
    assert {name for name, definition in TOPIC_SETTINGS.items() if definition.has_effect} == effects.TOPIC


def test_what_topics_fall_back_to_has_their_effect() -> None:
    for definition in TOPIC_SETTINGS.values():
        for synonym in definition.synonyms:
            assert BROKER_SETTINGS[synonym.name].has_effect == definition.has_effect, synonym.name
