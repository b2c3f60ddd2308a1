"""Answers that take long to make, item by item, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from itertools import islice

from barnabas.gateway import limits
from barnabas.gateway.answers.cluster_faults import error_codes
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.wire.responses import Body, encode_item, join_items


async def answer_item_by_item(request: Request, items: Iterable[Body], bytes_max: int = sys.maxsize) -> bytes:
    """The encoded answer to a request whose response is an array of `items`, each of which is made when it is its turn.

    An answer of more than a few items is made alone: those of many clients would take the loop's time together, and
    their memory, which nobody counts before an answer is whole.

    Raises KafkaError, INVALID_REQUEST, where it would be larger than `bytes_max`.
    """
    header = request.header
    remaining = iter(items)
    encoded = [_encode(request, item) for item in islice(remaining, limits.DESCRIBED_AT_A_TIME)]
    size_bytes = sum(map(len, encoded))
    _check_size(size_bytes, bytes_max)
    if len(encoded) < limits.DESCRIBED_AT_A_TIME:
        return join_items(header.api_key, header.api_version, header.correlation_id, encoded)
    async with request.parts.large_answers:
        for item in remaining:
            if len(encoded) % limits.DESCRIBED_AT_A_TIME == 0:
                await asyncio.sleep(0)
            encoded.append(_encode(request, item))
            size_bytes += len(encoded[-1])
            _check_size(size_bytes, bytes_max)
        return join_items(header.api_key, header.api_version, header.correlation_id, encoded)


def _encode(request: Request, item: Body) -> bytes:
    for code in error_codes(item):
        request.times.count_error(code)
    return encode_item(request.header.api_key, request.header.api_version, item)


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"The answer would be larger than {bytes_max} bytes: ask for less at a time.",
        )
