"""The settings of a topic that its partitions obey, worked out once per topic and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.kernel.logs import get_logger
from barnabas.log.config import LogConfig
from barnabas.metadata.effective import topic_setting_text
from barnabas.metadata.image import BROKER_RESOURCE, MetadataImage

LOG_SETTINGS: Final = tuple(name.replace("_", ".") for name in LogConfig.__dataclass_fields__)
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

log = get_logger("storage.topic_settings")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a partition needs to know of its topic's settings; the defaults are Kafka's."""

    log: LogConfig = field(default_factory=LogConfig)
    min_insync_replicas: int = 1


class TopicSettingsReader:
    """Owner of the settings worked out so far; topics without settings of their own share one value."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        """`static` is the node's configuration file: what the metadata knows of it may be of its last start."""
        self._node_id = node_id
        self._static = static
        self._broker_values: tuple[Mapping[str, str] | None, ...] = ()
        self._known: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def read(self, image: MetadataImage, topic: str) -> TopicSettings:
        """The topic's settings in `image`, as this node sees them."""
        broker_values = tuple(image.configs.get((BROKER_RESOURCE, name)) for name in ("", str(self._node_id)))
        if broker_values != self._broker_values:
            self._broker_values = broker_values
            self._known.clear()
        own = tuple(sorted(image.topic_config(topic).items()))
        settings = self._known.get(own)
        if settings is None:
            settings = self._known[own] = self._work_out(image, topic)
        return settings

    def _work_out(self, image: MetadataImage, topic: str) -> TopicSettings:
        values: dict[str, str] = {}
        for name in (*LOG_SETTINGS, MIN_INSYNC_REPLICAS):
            text = topic_setting_text(image, topic, name, node_id=self._node_id, static=self._static)
            if text is not None:
                values[name] = text
        try:
            return TopicSettings(LogConfig.from_topic_config(values), int(values[MIN_INSYNC_REPLICAS]))
        except ValueError as error:
            # The controller checks what it stores, so this is a setting newer than this node.
            log.error("a topic's settings cannot be used; its defaults apply", topic=topic, reason=str(error))
            return TopicSettings()
