"""The defaults that are not Kafka's, by setting: what the services that act on them have when nobody says otherwise.

Storage nodes show them to clients, whether those services run with them or not; a unit test holds them to the
services' configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OTHER_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "broker.session.timeout.ms": "2000",
        "max.connections": "10000",
        "offsets.topic.replication.factor": "-1",
        "queued.max.request.bytes": "268435456",
        "transaction.state.log.replication.factor": "-1",
    }
)
