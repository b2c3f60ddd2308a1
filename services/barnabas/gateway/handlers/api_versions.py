"""ApiVersions (key 18): what this gateway serves.

v1 adds the throttle time, v3 the client's software name and the finalized features, v4 shows features whose lowest
level is 0 (KAFKA-17011). Any higher version is answered in v0 with UNSUPPORTED_VERSION and the table (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.image import MetadataImage
from barnabas.wire.responses import Body

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: what a client may call itself and its version."""

_LEVEL_ZERO_SINCE: Final = 4
"""Clients that ask in an older version cannot read a range that begins with 0."""


def supported_versions(handlers: Mapping[int, Handler], parts: GatewayParts) -> list[dict[str, Any]]:
    """The rows of the answer: one for each handler that is shown now, by key."""
    return [
        {
            "api_key": key,
            "min_version": handler.versions[0]
            if handler.advertised_from is None
            else handler.advertised_from,
            "max_version": handler.versions[1],
        }
        for key, handler in sorted(handlers.items())
        if handler.advertised_when is None or handler.advertised_when(parts)
    ]


async def handle(request: Request) -> Answer:
    if request.version >= 3:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE_NAME.fullmatch(name) for name in names):
            return {"error_code": ErrorCode.invalid_request, "api_keys": []}
        request.client.software.name, request.client.software.version = names
    return {
        "api_keys": supported_versions(request.parts.handlers, request.parts),
        **features_answer(request.image, request.version),
    }


def features_answer(image: MetadataImage, version: int) -> Body:
    """The features (KIP-584); their epoch is the metadata's revision, which rises with every change of a level."""
    return {
        "supported_features": [
            {"name": name, "min_version": levels.low, "max_version": levels.high}
            for name, levels in SUPPORTED_FEATURES.items()
            if levels.low > 0 or version >= _LEVEL_ZERO_SINCE
        ],
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in image.features.items()
            if level
        ],
        "finalized_features_epoch": image.revision,
    }


HANDLER = Handler(api_key=18, versions=(0, 4), handle=handle)
