"""DescribeClientQuotas (key 48): the quotas of the entities that a filter picks (KIP-546).

v1 is flexible. A filter has a component for each entity type that it looks at: one name, the default, or any name
that is specified. `strict` leaves out entities with types beside those.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity


class MatchType(IntEnum):
    """How a component of the filter picks."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


async def handle(request: Request) -> Answer:
    components = request.body.components
    try:
        _check(components)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    found = (
        (entity, quotas)
        for entity, quotas in request.image.client_quotas.items()
        if _is_picked(entity, components, strict=request.body.strict)
    )
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in quotas.items()],
            }
            for entity, quotas in found
        ],
    }


def _check(components: Sequence[Any]) -> None:
    """Raise KafkaError INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown entity type, as Kafka does."""
    kinds: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("The entity type is empty: use user, client-id or ip.")
        if kind in kinds:
            raise _invalid(f"Entity type {kind} appears more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"Unsupported entity type {kind}: use {', '.join(ENTITY_TYPES)}.",
            )
        if component.match_type not in list(MatchType):
            raise _invalid(f"Unknown match type {component.match_type}: use 0, 1 or 2.")
        if component.match_type == MatchType.EXACT and component.match is None:
            raise _invalid(f"An exact match of {kind} needs a name.")
        if component.match_type != MatchType.EXACT and component.match is not None:
            raise _invalid(f"Only an exact match has a name, but that of {kind} is not exact.")
        kinds.add(kind)
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise _invalid("An ip cannot be looked for together with a user or a client-id.")


def _is_picked(entity: QuotaEntity, components: Sequence[Any], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == MatchType.SPECIFIED or names[component.entity_type] == component.match)
        for component in components
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


HANDLER = Handler(api_key=48, versions=(0, 1), handle=handle)
