"""UpdateFeatures (key 57): finalized features raised or lowered, all of them or none (KIP-584).

v1 adds validate-only and the upgrade type, which v0 has as "allow downgrade" (KIP-778); v2 has no results by feature
any more. The answer comes when this gateway knows the levels.
"""

from __future__ import annotations

from typing import Any

from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
    wait_for_image,
)
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.kafka_values import SAFE_DOWNGRADE, UPGRADE
from barnabas.messages.controller_pb2 import FeatureUpdate, UpdateFeaturesRequest
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    message = UpdateFeaturesRequest(
        updates=[_update(update) for update in request.body.feature_updates],
        validate_only=request.get("validate_only", False),
    )
    response = await call_controller(
        request.parts,
        lambda controller, seconds: controller.UpdateFeatures(message, timeout=seconds),
        controller_timeout_seconds(request),
    )
    if not response.result.error_code and not message.validate_only:
        wanted = {update.name: update.level for update in message.updates}
        await wait_for_image(request, lambda image: _are_finalized(image, wanted))
    return {
        "error_code": response.result.error_code,
        "error_message": response.result.error_message or None,
        "results": [
            {
                "feature": update.name,
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
            for update, result in zip(message.updates, response.results, strict=False)
        ],
    }


def _update(update: Any) -> FeatureUpdate:
    upgrade_type = getattr(update, "upgrade_type", None)
    if upgrade_type is None:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return FeatureUpdate(name=update.feature, level=update.max_version_level, upgrade_type=upgrade_type)


def _are_finalized(image: MetadataImage, wanted: dict[str, int]) -> bool:
    return all(image.features.get(name, 0) == level for name, level in wanted.items())


HANDLER = Handler(
    api_key=57,
    versions=(0, 2),
    handle=handle,
    lacks="Only metadata.version and transaction.version have levels; features whose requests are not served yet stay "
    "at level 0.",
)
