"""ApiVersions (key 18): what this gateway serves.

v1 adds the throttle time, v3 the client's software name and the finalized features, v4 shows features whose lowest
version is 0. Any higher version is answered in v0 with UNSUPPORTED_VERSION and the table (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.responses import Body

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: what a client may call itself and its version."""


def supported_versions(handlers: Mapping[int, Handler]) -> list[dict[str, Any]]:
    """The rows of the answer: one for each handler, by key."""
    return [
        {
            "api_key": key,
            "min_version": handler.versions[0]
            if handler.advertised_from is None
            else handler.advertised_from,
            "max_version": handler.versions[1],
        }
        for key, handler in sorted(handlers.items())
    ]


async def handle(request: Request) -> Answer:
    from barnabas.gateway.handlers.table import HANDLERS

    if request.version >= 3:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE_NAME.fullmatch(name) for name in names):
            return {"error_code": ErrorCode.invalid_request, "api_keys": []}
    return versions_answer(HANDLERS, request.image.revision)


def versions_answer(handlers: Mapping[int, Handler], revision: int) -> Body:
    """The whole answer. No feature is finalized yet: the epoch is the metadata's revision (KIP-584)."""
    return {
        "api_keys": supported_versions(handlers),
        "supported_features": [],
        "finalized_features": [],
        "finalized_features_epoch": revision,
    }


HANDLER = Handler(
    api_key=18,
    versions=(0, 4),
    handle=handle,
    lacks="No features are supported or finalized yet.",
)
