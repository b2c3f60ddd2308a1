"""DescribeConfigs (key 32): settings with their values, sources and what stands behind them.

v1 adds sources and synonyms, v3 types and documentation (KIP-569). Any gateway answers for any broker.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.answers.config_resources import config_entry, described_settings
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError


async def handle(request: Request) -> Answer:
    return {"results": [_describe(request, resource) for resource in request.body.resources]}


def _describe(request: Request, resource: Any) -> dict[str, Any]:
    described = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    image = request.image
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
