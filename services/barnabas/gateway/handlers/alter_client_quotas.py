"""AlterClientQuotas (key 49): quotas of users, client ids and addresses set and removed (KIP-546, KIP-612).

v1 is flexible. All changes of an entity are made or none; entities do not touch one another. The answer comes when
this gateway knows the quotas.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.gateway.inside.controller_calls import call_controller, wait_for_image
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    AlterClientQuotasRequest,
    ClientQuotaChange,
    ClientQuotaOperation,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import QuotaEntityPart
from barnabas.metadata.client_quotas import IP, QuotaEntity, quota_entity
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    changes = [_change(entry) for entry in request.body.entries]
    results = await _unresolvable(changes)
    message = AlterClientQuotasRequest(
        entries=[change for change in changes if quota_entity(change.entity) not in results],
        validate_only=request.body.validate_only,
    )
    for change, result in zip(message.entries, await _submit(request, message), strict=True):
        results[quota_entity(change.entity)] = result
    if not message.validate_only:
        made = [change for change in message.entries if not results[quota_entity(change.entity)].error_code]
        await wait_for_image(request, lambda image: all(_is_visible(image, change) for change in made))
    # An entity that is named twice gets one result, as in Kafka.
    entities = dict.fromkeys(quota_entity(change.entity) for change in changes)
    return {"entries": [_answer(entity, results[entity]) for entity in entities]}


async def _submit(request: Request, message: AlterClientQuotasRequest) -> Sequence[ResourceResult]:
    try:
        response = await call_controller(
            request.parts,
            lambda controller, seconds: controller.AlterClientQuotas(message, timeout=seconds),
        )
    except KafkaError as error:
        failed = ResourceResult(error_code=error.code, error_message=error.message)
        return [failed] * len(message.entries)
    return response.results


def _change(entry: Any) -> ClientQuotaChange:
    return ClientQuotaChange(
        entity=[QuotaEntityPart(type=part.entity_type, name=part.entity_name) for part in entry.entity],
        operations=[ClientQuotaOperation(key=op.key, value=op.value, remove=op.remove) for op in entry.ops],
    )


async def _unresolvable(changes: Sequence[ClientQuotaChange]) -> dict[QuotaEntity, ResourceResult]:
    """The refusals of entities that are an address which is none, nor the name of a host."""
    hosts = {
        entity: name
        for entity in (quota_entity(change.entity) for change in changes)
        for kind, name in entity
        if kind == IP and name and len(entity) == 1
    }
    return {
        entity: ResourceResult(
            error_code=ErrorCode.invalid_request,
            error_message=f"{name} is no address, and no host has the name.",
        )
        for entity, name in hosts.items()
        if not await _is_address(name)
    }


async def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return False
    return True


def _is_visible(image: MetadataImage, change: ClientQuotaChange) -> bool:
    known: Mapping[str, float] = image.client_quotas.get(quota_entity(change.entity), {})
    return all(
        operation.key not in known if operation.remove else known.get(operation.key) == operation.value
        for operation in change.operations
    )


def _answer(entity: QuotaEntity, result: ResourceResult) -> dict[str, Any]:
    return {
        "error_code": result.error_code,
        "error_message": result.error_message or None,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
    }


HANDLER = Handler(
    api_key=49,
    versions=(0, 1),
    handle=handle,
    lacks="Quotas are stored and described, but not enforced yet.",
)
