"""DescribeConfigs (key 32): settings with their values, sources and what stands behind them.

v1 adds sources and synonyms, v3 types and documentation (KIP-569). Any gateway answers for any broker.

A topic has dozens of settings, and tools ask for those of all topics at once: that takes seconds where there are
thousands, in which others are served as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.answers.config_resources import config_entry, described_settings
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.image import MetadataImage
from barnabas.wire.responses import encode_item, join_items


async def handle(request: Request) -> Answer:
    header, image = request.header, request.image
    items: list[bytes] = []
    size_bytes = 0
    for resource in request.body.resources:
        described = _describe(request, image, resource)
        request.times.count_error(described.get("error_code", 0))
        items.append(encode_item(header.api_key, header.api_version, described))
        size_bytes += len(items[-1])
        if size_bytes > limits.DESCRIBED_BYTES_MAX:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"The answer would be larger than {limits.DESCRIBED_BYTES_MAX} bytes: ask for fewer resources.",
            )
        if len(items) % limits.DESCRIBED_AT_A_TIME == 0:
            await asyncio.sleep(0)
    return join_items(header.api_key, header.api_version, header.correlation_id, items)


def _describe(request: Request, image: MetadataImage, resource: Any) -> dict[str, Any]:
    described = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    # No names, whether null or an empty list, ask for all.
    names = frozenset(resource.configuration_keys or ())
    try:
        configs = [
            config_entry(
                setting,
                read_only=read_only,
                synonyms=request.get("include_synonyms", False),
                documentation=request.get("include_documentation", False),
            )
            for setting, read_only in described_settings(
                image,
                resource.resource_type,
                resource.resource_name,
                request.addressed_node(image),
                request.brokers(image),
                request.client.listener.name,
            )
            if not names or setting.definition.name in names
        ]
    except KafkaError as error:
        return {
            **described,
            "error_code": error.code,
            "error_message": error.message,
            "configs": [],
        }
    return {**described, "error_message": "", "configs": configs}


HANDLER = Handler(
    api_key=32,
    versions=(1, 4),
    handle=handle,
    lacks="Broker loggers are refused: log levels are set when a service starts.",
)
