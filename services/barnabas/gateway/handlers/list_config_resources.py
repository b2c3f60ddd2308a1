"""ListConfigResources (key 74): the resources that have, or can have, a configuration (KIP-1142).

v0 lists client metrics only (KIP-714). v1 lists the types asked for, all when none is
named: topics and brokers as they are, groups and client metrics as far as something is set on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.metadata.image import MetadataImage

_TYPES: Final = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)


async def handle(request: Request) -> Answer:
    supported = _TYPES if request.version >= 1 else (CLIENT_METRICS_RESOURCE,)
    asked = dict.fromkeys(request.get("resource_types", ()) or supported)
    if not set(asked).issubset(supported):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    image = request.image
    return {
        "error_code": ErrorCode.none,
        "config_resources": [
            {"resource_type": resource_type, "resource_name": name}
            for resource_type in asked
            for name in _names(request, image, resource_type)
        ],
    }


def _names(request: Request, image: MetadataImage, resource_type: int) -> Iterable[str]:
    if resource_type == TOPIC_RESOURCE:
        return image.topics
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return (str(broker_id) for broker_id in request.brokers(image))
    return (name for kind, name in image.configs if kind == resource_type)


HANDLER = Handler(
    api_key=74,
    versions=(0, 1),
    handle=handle,
    lacks="Broker loggers are listed as Kafka lists them, but DescribeConfigs refuses them.",
)
