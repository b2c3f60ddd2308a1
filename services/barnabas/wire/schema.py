"""Kafka's message schemas by (API key, version), loaded on first use.

All of kio's schema modules take a second and 30 MB to import; the few that clients use take little. So every
reader and writer here is built when the first request of its kind arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

API_VERSIONS_KEY: Final = 18
DESCRIBE_TRANSACTIONS_KEY: Final = 65

Reader = Callable[[bytes, int], tuple[Any, int]]


def is_known_api(api_key: int) -> bool:
    """Whether Kafka has an API with this key at all."""
    return api_key in api_key_map


def api_name(api_key: int) -> str:
    """The name of an API as Kafka's documentation spells it, such as OffsetFetch."""
    return "".join(part.capitalize() for part in api_key_map[api_key].split("_"))


def api_identifier(api_key: int) -> str:
    """The name of an API in lower case, its words joined by underscores, such as offset_fetch."""
    return str(api_key_map[api_key])


def version_range(api_key: int) -> tuple[int, int]:
    """The lowest and highest version for which a schema exists."""
    versions = schema_name_map[api_key_map[api_key]]
    return min(versions), max(versions)


@functools.cache
def request_reader(api_key: int, version: int) -> Reader:
    """The function that decodes a request body: (buffer, offset) -> (request, size)."""
    return entity_reader(load_request_schema(api_key, version))


@functools.cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version uses compact types and tagged fields (KIP-482)."""
    return bool(load_request_schema(api_key, version).__flexible__)


@functools.cache
def response_schema(api_key: int, version: int) -> type[Any]:
    """The dataclass of the response body."""
    if api_key == DESCRIBE_TRANSACTIONS_KEY:
        from barnabas.wire.described_transactions import DescribeTransactionsResponse

        return DescribeTransactionsResponse
    return load_response_schema(api_key, version)
