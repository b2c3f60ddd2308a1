"""DescribeConfigs (key 32): settings with their values, sources and what stands behind them.

v1 adds sources and synonyms, v3 types and documentation (KIP-569). Any gateway answers for any broker.

A topic has dozens of settings, and tools ask for those of all topics at once: that takes seconds where there are
thousands, in which others are served as well.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway import limits
from barnabas.gateway.answers.config_resources import config_entry, described_settings
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError
from barnabas.metadata.image import MetadataImage
from barnabas.wire.response_slices import Rows


async def handle(request: Request) -> Answer:
    image = request.image
    resources = request.body.resources
    described = Rows(len(resources), (_describe(request, image, resource) for resource in resources))
    return await encode_answer(request, {"results": described}, limits.DESCRIBED_BYTES_MAX)


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
