"""IncrementalAlterConfigs (key 44): single settings set, deleted, added to, taken from (KIP-339).

v1 is flexible. All changes of a resource are made or none; resources do not touch one another. The answer comes when
this gateway knows what was set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.gateway.inside.controller_calls import call_controller, wait_for_image
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import DELETE_CONFIG, SET_CONFIG
from barnabas.messages.controller_pb2 import (
    ConfigOperation,
    ConfigResourceChange,
    IncrementalAlterConfigsRequest,
    ResourceResult,
)
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    message = IncrementalAlterConfigsRequest(
        resources=[_change(resource) for resource in request.body.resources],
        validate_only=request.body.validate_only,
    )
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.IncrementalAlterConfigs(message, timeout=seconds),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results: Sequence[ResourceResult] = [failed] * len(message.resources)
    else:
        results = response.results
    pairs = list(zip(message.resources, results, strict=True))
    if not message.validate_only:
        changed = [change for change, result in pairs if not result.error_code]
        await wait_for_image(request, lambda image: all(_is_visible(image, change) for change in changed))
    return {"responses": [_answer(change, result) for change, result in pairs]}


def _change(resource: Any) -> ConfigResourceChange:
    return ConfigResourceChange(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        operations=[
            ConfigOperation(name=config.name, operation=config.config_operation, value=config.value)
            for config in resource.configs
        ],
    )


def _is_visible(image: MetadataImage, change: ConfigResourceChange) -> bool:
    """Whether the image shows what the change set and deleted; what it did to lists is not followed."""
    known: Mapping[str, str] = image.configs.get((change.resource_type, change.resource_name), {})
    return all(
        (operation.operation != SET_CONFIG or known.get(operation.name) == operation.value)
        and (operation.operation != DELETE_CONFIG or operation.name not in known)
        for operation in change.operations
    )


def _answer(change: ConfigResourceChange, result: ResourceResult) -> dict[str, Any]:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "resource_type": change.resource_type,
        "resource_name": change.resource_name,
    }


HANDLER = Handler(
    api_key=44,
    versions=(0, 1),
    handle=handle,
    lacks="Broker loggers are refused: log levels are set when a service starts.",
)
