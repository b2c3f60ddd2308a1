"""A cluster that has nothing but settings, for commands that change some for their own time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.plain_connection import Unanswered, request_schema
from barnabas.cli.kafka.requests import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, DELETE_CONFIG, TOPIC_RESOURCE
from barnabas.metadata.effective import ConfigSource

OWN = {
    TOPIC_RESOURCE: ConfigSource.TOPIC_CONFIG.value,
    BROKER_RESOURCE: ConfigSource.DYNAMIC_BROKER_CONFIG.value,
}
Resource = tuple[int, str]


class AdministeredSettings(Administration):
    """Owns what was set for each topic and broker: a topic that is not among `topics` is not there.

    Ports in `silent` give no answer; `refused` are (resource, setting) that may not be changed.
    """

    def __init__(self, *topics: str) -> None:
        super().__init__(Connection("h:1"))
        self.of: dict[Resource, dict[str, str]] = {(TOPIC_RESOURCE, name): {} for name in topics}
        self.defaults: dict[str, str] = {}
        """What all brokers have."""
        self.changes: list[tuple[str, str, str | None]] = []
        self.silent: set[int] = set()
        self.refused: set[tuple[str, str]] = set()

    def ask(self, api_key: int, version: int, make: Any) -> Any:
        request = make(request_schema(api_key, version))
        if api_key == DESCRIBE_CONFIGS:
            return SimpleNamespace(results=[self._described(each) for each in request.resources])
        assert api_key == INCREMENTAL_ALTER_CONFIGS
        return SimpleNamespace(responses=[self._altered(each) for each in request.resources])

    def ask_broker(self, address: tuple[str, int], api_key: int, version: int, make: Any) -> Any:
        if address[1] in self.silent:
            raise Unanswered(f"{address[0]}:{address[1]} did not answer")
        return self.ask(api_key, version, make)

    def own(self, kind: int, name: str) -> dict[str, str]:
        return self.of.setdefault((kind, name), {}) if kind == BROKER_RESOURCE else self.of[kind, name]

    def _described(self, asked: Any) -> Any:
        kind, name = int(asked.resource_type), str(asked.resource_name)
        if kind == TOPIC_RESOURCE and (kind, name) not in self.of:
            return _result(name, ErrorCode.unknown_topic_or_partition)
        values = {key: (value, 5) for key, value in self.defaults.items()} if kind == BROKER_RESOURCE else {}
        values |= {key: (value, OWN[kind]) for key, value in self.own(kind, name).items()}
        entries = [
            SimpleNamespace(name=key, value=value, config_source=source)
            for key, (value, source) in values.items()
            if key in asked.configuration_keys
        ]
        return SimpleNamespace(**vars(_result(name, ErrorCode.none)), configs=entries)

    def _altered(self, asked: Any) -> Any:
        kind, name = int(asked.resource_type), str(asked.resource_name)
        if kind == TOPIC_RESOURCE and (kind, name) not in self.of:
            return _result(name, ErrorCode.unknown_topic_or_partition)
        if any((name, entry.name) in self.refused for entry in asked.configs):
            return _result(name, ErrorCode.cluster_authorization_failed)
        own = self.own(kind, name)
        for entry in asked.configs:
            if entry.config_operation == DELETE_CONFIG:
                own.pop(entry.name, None)
            else:
                own[entry.name] = entry.value
            self.changes.append((name, entry.name, own.get(entry.name)))
        return _result(name, ErrorCode.none)


def _result(name: str, code: ErrorCode) -> Any:
    return SimpleNamespace(resource_name=name, error_code=code, error_message=None)
