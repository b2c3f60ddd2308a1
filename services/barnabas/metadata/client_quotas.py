"""Client quotas as facts (KIP-546): what a quota can belong to, which quotas there are, and how one is found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote

from barnabas.messages.metadata_pb2 import QuotaEntityPart

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""What quotas belong to: (type, name) pairs in the order of their types; a name of None is the type's default."""

CLIENT_QUOTAS_PREFIX: Final = "client-quotas/"


class QuotaType(Enum):
    """The number behind a quota key, as Kafka reads it: whole numbers have a largest value, `DOUBLE` has none."""

    LONG = float(2**63)
    INT = float(2**31 - 1)
    DOUBLE = float("inf")


USER_AND_CLIENT_QUOTAS: Final[Mapping[str, QuotaType]] = MappingProxyType(
    {
        "producer_byte_rate": QuotaType.LONG,
        "consumer_byte_rate": QuotaType.LONG,
        "request_percentage": QuotaType.DOUBLE,
        "controller_mutation_rate": QuotaType.DOUBLE,
    }
)
"""The quotas of users and client ids."""

IP_QUOTAS: Final[Mapping[str, QuotaType]] = MappingProxyType({"connection_creation_rate": QuotaType.INT})
"""The quotas of addresses (KIP-612)."""


def quota_entity(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    """The entity that `parts` name, in whatever order they come; of two parts of one type the last counts."""
    names = {part.type: part.name if part.HasField("name") else None for part in parts}
    return tuple(sorted(names.items()))


def entity_parts(entity: QuotaEntity) -> list[QuotaEntityPart]:
    """The entity as a message."""
    return [QuotaEntityPart(type=kind, name=name) for kind, name in entity]


def client_quota_key(entity: QuotaEntity) -> str:
    """The store key of an entity's quotas: one entity has one key, whatever characters its names have.

    Names are percent-encoded; a default has no `=` after its type, which no name can look like.
    """
    parts = (kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity)
    return CLIENT_QUOTAS_PREFIX + ",".join(parts)


def entity_of_key(key: str) -> QuotaEntity:
    """The inverse of `client_quota_key`."""
    parts = (part.partition("=") for part in key.removeprefix(CLIENT_QUOTAS_PREFIX).split(","))
    return tuple((kind, unquote(name) if equals else None) for kind, equals, name in parts)
