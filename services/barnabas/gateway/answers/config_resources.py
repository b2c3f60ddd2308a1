"""Settings as DescribeConfigs and CreateTopics show them, and the resources that have settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from barnabas.gateway.clients.listeners import Endpoint
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.metadata.broker_rules import is_dynamic
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.client_metrics_settings import CLIENT_METRICS_SETTINGS
from barnabas.metadata.effective import (
    ConfigSource,
    ConfigSynonym,
    EffectiveSetting,
    effective_broker_setting,
    effective_client_metrics_setting,
    effective_group_setting,
    effective_topic_settings,
    static_settings,
)
from barnabas.metadata.group_settings import GROUP_SETTINGS
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_names import check_topic_name

Described = Iterator[tuple[EffectiveSetting, bool]]
"""(setting, is it read-only)."""


def described_settings(
    image: MetadataImage,
    resource_type: int,
    name: str,
    answering_node: int | None,
    brokers: Mapping[int, Endpoint] = MappingProxyType({}),
    listener: str = "PLAINTEXT",
) -> Described:
    """All settings of a resource.

    Settings of topics and groups are shown as broker `answering_node` sees them, whose own settings they may fall
    back to. `brokers` are the addresses that the client on `listener` is told, which are its brokers' listeners.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST.
    """
    if resource_type == TOPIC_RESOURCE:
        return _topic_settings(image, name, answering_node)
    if resource_type == BROKER_RESOURCE:
        if not name:
            return _cluster_defaults(image)
        node_id = _broker_id(image, name)
        return _broker_settings(
            image, node_id, _static_settings(image, node_id, brokers.get(node_id), listener)
        )
    if resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request, "Log levels are not served here: set them when a service starts."
        )
    if resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
        return _group_settings(image, name, answering_node)
    if resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
        return _client_metrics_settings(image, name)
    raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")


def _topic_settings(image: MetadataImage, name: str, node_id: int | None) -> Described:
    check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    return ((setting, False) for setting in effective_topic_settings(image, name, node_id=node_id).values())


def _group_settings(image: MetadataImage, name: str, node_id: int | None) -> Described:
    return (
        (effective_group_setting(image, name, setting_name, node_id=node_id), False)
        for setting_name in GROUP_SETTINGS
    )


def _client_metrics_settings(image: MetadataImage, name: str) -> Described:
    return (
        (effective_client_metrics_setting(image, name, setting_name), False)
        for setting_name in CLIENT_METRICS_SETTINGS
    )


def _broker_settings(image: MetadataImage, node_id: int, static: Mapping[str, str]) -> Described:
    """All settings of one broker; internal and unknown ones where they are set."""
    names = {name for name, definition in BROKER_SETTINGS.items() if not definition.internal}
    names |= static.keys()
    for broker in ("", str(node_id)):
        names |= image.configs.get((BROKER_RESOURCE, broker), {}).keys()
    for name in sorted(names):
        yield (
            effective_broker_setting(image, name, node_id=node_id, static=static),
            not is_dynamic(name),
        )


def _cluster_defaults(image: MetadataImage) -> Described:
    """Only what was set for all brokers (KIP-226)."""
    for name in sorted(image.configs.get((BROKER_RESOURCE, ""), {})):
        setting = effective_broker_setting(image, name, static={})
        synonyms = tuple(
            synonym
            for synonym in setting.synonyms
            if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )
        yield (
            EffectiveSetting(setting.definition, setting.text, setting.source, synonyms),
            not is_dynamic(name),
        )


def _static_settings(
    image: MetadataImage, node_id: int, endpoint: Endpoint | None, listener: str
) -> Mapping[str, str]:
    """What the node's configuration file sets, with what a Kafka broker would have there and a gateway serves."""
    static = {"broker.id": str(node_id), "node.id": str(node_id), "process.roles": "broker"}
    static.update(static_settings(image, node_id))
    if image.nodes[node_id].rack:
        static["broker.rack"] = image.nodes[node_id].rack
    if endpoint is not None:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        for name in ("advertised.listeners", "listeners"):
            static.setdefault(name, f"{listener}://{host}:{endpoint.port}")
    return static


def _broker_id(image: MetadataImage, name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise KafkaError(ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}")
    if int(name) not in image.nodes:
        known = ", ".join(str(node_id) for node_id in sorted(image.nodes))
        raise KafkaError(
            ErrorCode.invalid_request, f"Unexpected broker id {name}: expected one of {known}, or nothing."
        )
    return int(name)


def config_entry(
    setting: EffectiveSetting, *, read_only: bool, synonyms: bool, documentation: bool
) -> dict[str, Any]:
    """One setting of a DescribeConfigs answer, for all versions."""
    definition = setting.definition
    return {
        "name": definition.name,
        "value": None if definition.sensitive else setting.text,
        "read_only": read_only,
        "config_source": setting.source,
        "is_sensitive": definition.sensitive,
        "synonyms": [_synonym(setting, synonym) for synonym in setting.synonyms] if synonyms else [],
        "config_type": definition.type,
        "documentation": (definition.documentation or None) if documentation else None,
    }


def _synonym(setting: EffectiveSetting, synonym: ConfigSynonym) -> dict[str, Any]:
    value = None if setting.definition.sensitive else synonym.value
    return {"name": synonym.name, "value": value, "source": synonym.source}


def created_topic_configs(image: MetadataImage, topic: str, own: Mapping[str, str]) -> list[dict[str, Any]]:
    """The settings of a topic as CreateTopics answers them from version 5 (KIP-525).

    `own` are the settings that the request sets: they count whether or not `image` has the topic already.
    """
    entries = []
    for name, setting in effective_topic_settings(image, topic).items():
        is_own = name in own
        entries.append(
            {
                "name": name,
                "value": own[name] if is_own else setting.text,
                "read_only": False,
                "config_source": ConfigSource.TOPIC_CONFIG if is_own else setting.source,
                "is_sensitive": setting.definition.sensitive,
            }
        )
    return entries
