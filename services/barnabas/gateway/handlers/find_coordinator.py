"""FindCoordinator (key 10): the broker that serves a group or a transactional id.

v1 adds the key type, v4 asks for several keys at once, v5 may answer TRANSACTION_ABORTABLE, v6 knows share groups. Any
gateway reaches any coordinator, so the broker named is the leader of the key's partition of __consumer_offsets or
__transaction_state, as Kafka's tools expect; the gateway behind it forwards to the coordinator that owns the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.clients.listeners import Endpoint
from barnabas.gateway.inside.topic_creation import ensure_internal_topic
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.coordinators import owning_partition
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES

_GROUP: Final = 0
_TRANSACTION: Final = 1
_TOPICS: Final = MappingProxyType({_GROUP: GROUP_METADATA_TOPIC, _TRANSACTION: TRANSACTION_STATE_TOPIC})
"""Whose partitions the keys of a type belong to."""
_BATCHED_FROM: Final = 4
_NO_ERROR: Final = "NONE"
"""What Kafka says in versions 1 to 3 where nothing is wrong."""


async def handle(request: Request) -> Answer:
    key_type = request.get("key_type", _GROUP)
    keys = request.body.coordinator_keys if request.version >= _BATCHED_FROM else [request.body.key]
    topic = _TOPICS.get(key_type)
    if topic is not None:
        await ensure_internal_topic(request.parts, topic)
    image = request.image
    brokers = request.brokers(image)
    found = []
    for key in keys:
        if topic is None:
            refusal = f"key type {key_type} is not served"
            found.append(_missing(key, ErrorCode.invalid_request, refusal))
        else:
            found.append(_find(request, image, brokers, topic, key))
        if len(found) % limits.KEYS_AT_A_TIME == 0:
            await asyncio.sleep(0)
    if request.version >= _BATCHED_FROM:
        return {"coordinators": found}
    return {**found[0], "error_message": found[0]["error_message"] or _NO_ERROR}


def _find(
    request: Request, image: MetadataImage, brokers: Mapping[int, Endpoint], topic: str, key: str
) -> dict[str, Any]:
    record = owning_partition(image, topic, key)
    if record is None:
        return _missing(key, NOBODY_COORDINATES)
    broker = brokers.get(request.shown_leader(image, record.leader))
    if broker is None or record.coordinator_id not in image.coordinators:
        return _missing(key, NOBODY_COORDINATES)
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "key": key,
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
    }


def _missing(key: str, code: ErrorCode, message: str = "") -> dict[str, Any]:
    message = message or "The coordinator is not available."
    return {"error_code": code, "error_message": message, "key": key, "node_id": -1, "host": "", "port": -1}


HANDLER = Handler(
    api_key=10,
    versions=(0, 6),
    handle=handle,
    unanswered=NOBODY_COORDINATES,
    lacks="Share groups have no coordinators yet and are refused.",
)
