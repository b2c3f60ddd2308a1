"""The handler table: every Kafka API that the gateway serves. Dispatch, version checks, ApiVersions and
docs/compatibility.md all read it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.gateway.handlers import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from barnabas.gateway.request import Handler

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    find_coordinator,
    api_versions,
    init_producer_id,
    offset_for_leader_epoch,
)

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {module.HANDLER.api_key: module.HANDLER for module in _MODULES}
)
