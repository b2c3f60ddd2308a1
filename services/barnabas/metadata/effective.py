"""Which value a setting really has, where it comes from, and what stands behind it.

The order is Kafka's (KIP-226): a topic's or group's own value, then for its broker synonyms the broker's dynamic value,
the cluster's dynamic default, the configuration file, and at last the built-in default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from types import MappingProxyType
from typing import Final

from barnabas.kernel.kafka_values import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.metadata.broker_settings import broker_setting, broker_synonyms
from barnabas.metadata.client_metrics_settings import client_metrics_setting
from barnabas.metadata.config_def import ConfigDef, Synonym
from barnabas.metadata.group_settings import group_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_settings import TOPIC_SETTINGS, topic_setting
from barnabas.metadata.validators import ConfigValue

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes that DescribeConfigs answers."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a setting has or would fall back to, under the name and in the unit of its source.

    That of a broker is spelt as it was given, that of a topic, a group or a subscription as Kafka shows it.
    """

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting with the value that counts. `source` and `synonyms` are what Kafka shows, the one that counts first.

    Kafka shows only what comes from the first broker synonym on: with nothing but log.retention.hours set,
    retention.ms has no synonyms and counts as a default, though its value is that of the hours.
    """

    definition: ConfigDef
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def value(self) -> ConfigValue:
        """The text, read: a number, a truth value, a tuple for a list."""
        return None if self.text is None else self.definition.parse(self.text)


def static_settings(image: MetadataImage, node_id: int | None) -> Mapping[str, str]:
    """The broker settings in the configuration file of a node; without a node, of the first that has any."""
    if node_id is not None:
        node = image.nodes.get(node_id)
        return _NOTHING if node is None else node.configs
    return next((node.configs for _, node in sorted(image.nodes.items()) if node.configs), _NOTHING)


def topic_setting_text(
    image: MetadataImage, topic: str, name: str, *, node_id: int, static: Mapping[str, str]
) -> str | None:
    """Only the text of `effective_topic_setting`, for a service that has no use for what stands behind it."""
    definition = topic_setting(name)
    own = image.configs.get((TOPIC_RESOURCE, topic), _NOTHING).get(name)
    if own is not None:
        return own
    behind = _set_values(image, definition.synonyms, node_id, static)
    return next((text for text, _ in behind), definition.default)


def effective_topic_setting(
    image: MetadataImage,
    topic: str,
    name: str,
    *,
    node_id: int | None = None,
    static: Mapping[str, str] | None = None,
) -> EffectiveSetting:
    """The value of a topic's setting as node `node_id` sees it; without one, as the whole cluster does.

    `static` is the broker's configuration file; None stands for the one that the node registered with. Raises
    KafkaError INVALID_CONFIG for an unknown name.
    """
    definition = topic_setting(name)
    own = image.configs.get((TOPIC_RESOURCE, topic), _NOTHING).get(name)
    behind = _broker_values(image, definition.synonyms, node_id, static)
    return _effective(definition, own, ConfigSource.TOPIC_CONFIG, behind)


def effective_topic_settings(
    image: MetadataImage,
    topic: str,
    *,
    node_id: int | None = None,
    static: Mapping[str, str] | None = None,
) -> dict[str, EffectiveSetting]:
    """All settings of a topic by name; internal ones only where the topic sets them."""
    own = image.configs.get((TOPIC_RESOURCE, topic), _NOTHING)
    return {
        name: effective_topic_setting(image, topic, name, node_id=node_id, static=static)
        for name, definition in TOPIC_SETTINGS.items()
        if not definition.internal or name in own
    }


def effective_broker_setting(
    image: MetadataImage, name: str, *, node_id: int | None = None, static: Mapping[str, str] | None = None
) -> EffectiveSetting:
    """The value of a broker's setting; `node_id` None asks for the cluster's.

    Unknown names are settings too, of the type UNKNOWN: a plug-in's, say.
    """
    definition = broker_setting(name)
    behind = _broker_values(image, [Synonym(each) for each in broker_synonyms(name)], node_id, static)
    shown = tuple(dropwhile(lambda synonym: synonym.name != name, (synonym for _, synonym in behind)))
    own = [definition.shown(synonym.value) for synonym in shown if synonym.name == name]
    source = shown[0].source if shown else ConfigSource.DEFAULT_CONFIG
    return EffectiveSetting(definition, own[0] if own else definition.default, source, shown)


def dynamic_broker_value(image: MetadataImage, name: str, otherwise: int) -> int:
    """The number that was set for all brokers while they run, or `otherwise`: for a service that has its own file."""
    text = image.configs.get((BROKER_RESOURCE, ""), _NOTHING).get(name)
    if text is None:
        return otherwise
    value = broker_setting(name).parse(text)
    assert isinstance(value, int)
    return value


def effective_group_setting(
    image: MetadataImage, group: str, name: str, *, node_id: int | None = None
) -> EffectiveSetting:
    """The value of a group's setting. Raises KafkaError INVALID_CONFIG for an unknown name."""
    definition = group_setting(name)
    own = image.configs.get((GROUP_RESOURCE, group), _NOTHING).get(name)
    behind = _broker_values(image, definition.synonyms, node_id, None)
    if not behind and definition.default is not None:
        behind = [(definition.default, ConfigSynonym(name, definition.default, ConfigSource.DEFAULT_CONFIG))]
    return _effective(definition, own, ConfigSource.DYNAMIC_GROUP_CONFIG, behind)


def effective_client_metrics_setting(image: MetadataImage, subscription: str, name: str) -> EffectiveSetting:
    """The value of a setting of a subscription. Raises KafkaError INVALID_REQUEST for an unknown name."""
    definition = client_metrics_setting(name)
    own = image.configs.get((CLIENT_METRICS_RESOURCE, subscription), _NOTHING).get(name)
    return _effective(definition, own, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG, [])


def _effective(
    definition: ConfigDef,
    own: str | None,
    own_source: ConfigSource,
    behind: Sequence[tuple[str, ConfigSynonym]],
) -> EffectiveSetting:
    first = definition.synonyms[0].name if definition.synonyms else definition.name
    shown = tuple(dropwhile(lambda synonym: synonym.name != first, (synonym for _, synonym in behind)))
    if own is not None:
        own = definition.shown(own)
        return EffectiveSetting(
            definition, own, own_source, (ConfigSynonym(definition.name, own, own_source), *shown)
        )
    text = definition.shown(behind[0][0]) if behind else definition.default
    return EffectiveSetting(
        definition, text, shown[0].source if shown else ConfigSource.DEFAULT_CONFIG, shown
    )


def _broker_values(
    image: MetadataImage,
    synonyms: Sequence[Synonym],
    node_id: int | None,
    static: Mapping[str, str] | None,
) -> list[tuple[str, ConfigSynonym]]:
    """(text in the setting's own unit, synonym) for each place that has a value, the strongest first."""
    values = list(_set_values(image, synonyms, node_id, static))
    for synonym in synonyms:
        default = broker_setting(synonym.name).default
        if default is not None:
            found = ConfigSynonym(synonym.name, default, ConfigSource.DEFAULT_CONFIG)
            values.append((synonym.unit.convert(default), found))
    return values


def _set_values(
    image: MetadataImage,
    synonyms: Sequence[Synonym],
    node_id: int | None,
    static: Mapping[str, str] | None,
) -> Iterator[tuple[str, ConfigSynonym]]:
    """The same without the defaults."""
    if not synonyms:
        return
    places: list[tuple[Mapping[str, str], ConfigSource]] = [
        (image.configs.get((BROKER_RESOURCE, ""), _NOTHING), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (static_settings(image, node_id) if static is None else static, ConfigSource.STATIC_BROKER_CONFIG),
    ]
    if node_id is not None:
        own = image.configs.get((BROKER_RESOURCE, str(node_id)), _NOTHING)
        places.insert(0, (own, ConfigSource.DYNAMIC_BROKER_CONFIG))
    for values, source in places:
        for synonym in synonyms:
            text = values.get(synonym.name)
            if text is not None:
                yield synonym.unit.convert(text), ConfigSynonym(synonym.name, text, source)
