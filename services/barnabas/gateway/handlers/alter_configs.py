"""AlterConfigs (key 33): the whole dynamic configuration of resources replaced (KIP-133).

What a request does not name goes back to its default; IncrementalAlterConfigs changes single settings. v2 is flexible.
The answer comes when this gateway knows what was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.gateway.inside.controller_calls import call_controller, wait_for_image
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import KafkaError
from barnabas.messages.controller_pb2 import AlterConfigsRequest, ConfigEntry, ReplacedConfig, ResourceResult
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    message = AlterConfigsRequest(
        resources=[_replaced(resource) for resource in request.body.resources],
        validate_only=request.body.validate_only,
    )
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.AlterConfigs(message, timeout=seconds),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        results: Sequence[ResourceResult] = [failed] * len(message.resources)
    else:
        results = response.results
    pairs = list(zip(message.resources, results, strict=True))
    if not message.validate_only:
        changed = [replaced for replaced, result in pairs if not result.error_code]
        await wait_for_image(request, lambda image: all(_is_visible(image, each) for each in changed))
    return {"responses": [_answer(replaced, result) for replaced, result in pairs]}


def _replaced(resource: Any) -> ReplacedConfig:
    return ReplacedConfig(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[ConfigEntry(name=config.name, value=config.value) for config in resource.configs],
    )


def _is_visible(image: MetadataImage, replaced: ReplacedConfig) -> bool:
    known = image.configs.get((replaced.resource_type, replaced.resource_name), {})
    return dict(known) == {config.name: config.value for config in replaced.configs}


def _answer(replaced: ReplacedConfig, result: ResourceResult) -> dict[str, Any]:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "resource_type": replaced.resource_type,
        "resource_name": replaced.resource_name,
    }


HANDLER = Handler(
    api_key=33,
    versions=(0, 2),
    handle=handle,
)
