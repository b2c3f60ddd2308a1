"""The settings of a broker process: those of its gateway and those of its storage node, in one file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from barnabas.gateway.config import GatewayConfig
from barnabas.kernel.config import property_name
from barnabas.storage.config import StorageConfig

OF_ADDRESSES: Final = frozenset({"listeners", "advertised.listeners", "broker.rack"})
"""Settings of a gateway that are not the same for all who reach the node: it does not show them."""


@dataclass(frozen=True)
class BrokerConfig:
    """Each part takes the settings that it knows; what neither knows is a broker setting of the storage node's.

    What the gateway was told, the node shows to clients as its own.
    """

    gateway: GatewayConfig
    storage: StorageConfig

    def __post_init__(self) -> None:
        shown = {**_to_be_shown(self.gateway), **self.storage.broker_settings}
        object.__setattr__(self, "storage", replace(self.storage, broker_settings=shown))

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


def _to_be_shown(config: GatewayConfig) -> dict[str, str]:
    """The gateway's settings that Kafka's brokers have too, where a storage node by itself would show another value."""
    from barnabas.metadata.broker_settings import BROKER_SETTINGS  # slow to load
    from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS

    found = {}
    for field in fields(config):
        name, value = property_name(field.name), getattr(config, field.name)
        definition = BROKER_SETTINGS.get(name)
        if definition is None or name in OF_ADDRESSES:
            continue
        by_default = (
            definition.parse(OTHER_DEFAULTS[name]) if name in OTHER_DEFAULTS else definition.default_value()
        )
        if value != by_default:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
