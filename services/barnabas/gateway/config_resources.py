"""Settings as DescribeConfigs and CreateTopics show them, and the resources that have settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.config_def import UpdateMode
from barnabas.metadata.effective import (
    ConfigSource,
    ConfigSynonym,
    EffectiveSetting,
    effective_broker_setting,
    effective_topic_settings,
)
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.topic_names import check_topic_name

BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32


def described_settings(
    image: MetadataImage, resource_type: int, name: str, answering_node: int | None
) -> Iterator[tuple[EffectiveSetting, bool]]:
    """(setting, is it read-only) for each setting of a resource.

    A topic's settings are shown as broker `answering_node` sees them, whose own settings they may fall back to.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST.
    """
    if resource_type == TOPIC_RESOURCE:
        yield from ((setting, False) for setting in _topic_settings(image, name, answering_node))
    elif resource_type == BROKER_RESOURCE:
        for setting in _broker_settings(image, name):
            yield setting, setting.definition.update_mode is UpdateMode.READ_ONLY
    elif resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request, "Log levels are not served here: set them when a service starts."
        )
    elif resource_type in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "The name of the resource must not be empty.")
        # Nothing can be set on these yet, so nothing is set.
    else:
        raise KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {resource_type}")


def _topic_settings(image: MetadataImage, name: str, node_id: int | None) -> Iterator[EffectiveSetting]:
    check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    yield from effective_topic_settings(image, name, node_id=node_id).values()


def _broker_settings(image: MetadataImage, name: str) -> Iterator[EffectiveSetting]:
    """All settings of one broker; for the empty name only what was set as the cluster's default (KIP-226)."""
    if not name:
        for setting_name in sorted(image.configs.get((BROKER_RESOURCE, ""), {})):
            if setting_name in BROKER_SETTINGS:
                yield _only_cluster_default(effective_broker_setting(image, setting_name))
        return
    node_id = _broker_id(image, name)
    static = {"node.id": name, "broker.id": name}
    if image.nodes[node_id].rack:
        static["broker.rack"] = image.nodes[node_id].rack
    for setting_name in BROKER_SETTINGS:
        yield effective_broker_setting(image, setting_name, node_id=node_id, static=static)


def _only_cluster_default(setting: EffectiveSetting) -> EffectiveSetting:
    synonyms = tuple(
        synonym
        for synonym in setting.synonyms
        if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    return EffectiveSetting(setting.definition, setting.text, setting.source, synonyms)


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
        "documentation": definition.documentation if documentation else None,
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
