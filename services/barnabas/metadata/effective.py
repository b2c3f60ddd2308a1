"""Which value a setting really has, where it comes from, and what stands behind it.

The order is Kafka's (KIP-226): the topic's own value, then for its broker synonyms the broker's dynamic value, the
cluster's dynamic default, the configuration file, and at last the built-in default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.config_def import ConfigDef, ConfigValue, Synonym, Unit
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.topic_settings import TOPIC_SETTINGS, topic_setting

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes that DescribeConfigs answers."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a setting has or would fall back to, under the name and in the unit of its source."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting with the value that counts. `synonyms` are all that are set, the one that counts first."""

    definition: ConfigDef
    text: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def value(self) -> ConfigValue:
        """The text, read: a number, a truth value, a tuple for a list."""
        return None if self.text is None else self.definition.parse(self.text)


def effective_topic_setting(
    image: MetadataImage,
    topic: str,
    name: str,
    *,
    node_id: int | None = None,
    static: Mapping[str, str] = _NOTHING,
) -> EffectiveSetting:
    """The value of a topic's setting as node `node_id` sees it; without one, as the whole cluster does.

    `static` is the broker's configuration file. Raises KafkaError INVALID_CONFIG for an unknown name.
    """
    definition = topic_setting(name)
    found = list(_broker_values(image, definition.synonyms, node_id, static))
    own = image.configs.get((TOPIC_RESOURCE, topic), _NOTHING).get(name)
    if own is not None:
        found.insert(0, (own, ConfigSynonym(name, own, ConfigSource.TOPIC_CONFIG)))
    return _effective(definition, found)


def effective_topic_settings(
    image: MetadataImage,
    topic: str,
    *,
    node_id: int | None = None,
    static: Mapping[str, str] = _NOTHING,
) -> dict[str, EffectiveSetting]:
    """All settings of a topic by name."""
    return {
        name: effective_topic_setting(image, topic, name, node_id=node_id, static=static)
        for name in TOPIC_SETTINGS
    }


def effective_broker_setting(
    image: MetadataImage, name: str, *, node_id: int | None = None, static: Mapping[str, str] = _NOTHING
) -> EffectiveSetting:
    """The value of a broker's setting; `node_id` None asks for the cluster-wide default.

    Raises KeyError for a name that is not in BROKER_SETTINGS.
    """
    definition = BROKER_SETTINGS[name]
    return _effective(definition, list(_broker_values(image, (_own_name(name),), node_id, static)))


def _own_name(name: str) -> Synonym:
    return Synonym(name, Unit.SAME)


def _effective(definition: ConfigDef, found: Sequence[tuple[str, ConfigSynonym]]) -> EffectiveSetting:
    synonyms = tuple(synonym for _, synonym in found)
    if not found:
        return EffectiveSetting(definition, definition.default, ConfigSource.DEFAULT_CONFIG, ())
    return EffectiveSetting(definition, found[0][0], synonyms[0].source, synonyms)


def _broker_values(
    image: MetadataImage, synonyms: Sequence[Synonym], node_id: int | None, static: Mapping[str, str]
) -> Iterator[tuple[str, ConfigSynonym]]:
    """(text in the setting's own unit, synonym) for each place that has a value, the strongest first."""
    places: list[tuple[Mapping[str, str], ConfigSource]] = [
        (image.configs.get((BROKER_RESOURCE, ""), _NOTHING), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (static, ConfigSource.STATIC_BROKER_CONFIG),
    ]
    if node_id is not None:
        own = image.configs.get((BROKER_RESOURCE, str(node_id)), _NOTHING)
        places.insert(0, (own, ConfigSource.DYNAMIC_BROKER_CONFIG))
    for values, source in places:
        for synonym in synonyms:
            text = values.get(synonym.name)
            if text is not None:
                yield synonym.unit.convert(text), ConfigSynonym(synonym.name, text, source)
    for synonym in synonyms:
        text = BROKER_SETTINGS[synonym.name].default
        if text is not None:
            yield (
                synonym.unit.convert(text),
                ConfigSynonym(synonym.name, text, ConfigSource.DEFAULT_CONFIG),
            )
