"""The settings of a broker process: those of its gateway, its storage node and its coordinator, in one file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.config import GatewayConfig
from barnabas.kernel.config import ConfigError, part_if, property_name, settings_of
from barnabas.storage.config import StorageConfig

OF_ADDRESSES: Final = frozenset({"listeners", "advertised.listeners", "broker.rack"})
"""Settings of a gateway that are not the same for all who reach the node: it does not show them."""

COORDINATOR_ID: Final = "coordinator.id"
"""Where a file or a variable sets it, the broker is a coordinator, too."""


@dataclass(frozen=True)
class BrokerConfig:
    """Each part takes the settings that it knows; what none knows is a broker setting of the storage node's.

    What the others were told, the node shows to clients as its own. Raises ConfigError.
    """

    gateway: GatewayConfig
    storage: StorageConfig
    coordinator: CoordinatorConfig | None = part_if(COORDINATOR_ID)  # noqa: RUF009

    def __post_init__(self) -> None:
        others = (self.gateway, *(() if self.coordinator is None else (self.coordinator,)))
        shown: dict[str, str] = {}
        for other in others:
            shown |= _to_be_shown(other)
        shown |= self.storage.broker_settings
        object.__setattr__(self, "storage", replace(self.storage, broker_settings=shown))
        if self.coordinator is not None:
            object.__setattr__(self, "coordinator", self._where_the_node_is(self.coordinator))

    def _where_the_node_is(self, coordinator: CoordinatorConfig) -> CoordinatorConfig:
        """By themselves the two have different addresses."""
        address = self.storage.listen_address
        if address.endswith(":0") and not address.startswith("unix:"):
            raise ConfigError(
                f"listen.address={address}: name a port, for others find the coordinator of this broker there, too"
            )
        return replace(
            coordinator, listen_address=address, advertised_address=self.storage.advertised_address
        )

    @property
    def http_address(self) -> str:
        return self.storage.http_address

    @property
    def log_level(self) -> str:
        return self.storage.log_level

    @property
    def log_format(self) -> str:
        return self.storage.log_format

    @property
    def movable_clock_file(self) -> str:
        return self.storage.movable_clock_file


def _to_be_shown(config: GatewayConfig | CoordinatorConfig) -> dict[str, str]:
    """The settings that Kafka's brokers have too, where a storage node by itself would show another value."""
    from barnabas.metadata.broker_settings import BROKER_SETTINGS  # slow to load
    from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS

    found, texts = {}, settings_of(config)
    for field in fields(config):
        name, value = property_name(field.name), getattr(config, field.name)
        definition = BROKER_SETTINGS.get(name)
        if definition is None or name in OF_ADDRESSES:
            continue
        by_default = (
            definition.parse(OTHER_DEFAULTS[name]) if name in OTHER_DEFAULTS else definition.default_value()
        )
        if value != by_default:
            found[name] = texts[name]
    return found
