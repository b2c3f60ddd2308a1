"""Answers that take long to make, item by item, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from barnabas.gateway import limits
from barnabas.gateway.answers.cluster_faults import error_codes
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.wire.responses import Body, encode_item, join_items


async def answer_item_by_item(request: Request, items: Iterable[Body], bytes_max: int = sys.maxsize) -> bytes:
    """The encoded answer to a request whose response is an array of `items`, each of which is made when it is its turn.

    Raises KafkaError, INVALID_REQUEST, where it would be larger than `bytes_max`.
    """
    header = request.header
    encoded: list[bytes] = []
    size_bytes = 0
    for item in items:
        for code in error_codes(item):
            request.times.count_error(code)
        encoded.append(encode_item(header.api_key, header.api_version, item))
        size_bytes += len(encoded[-1])
        if size_bytes > bytes_max:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"The answer would be larger than {bytes_max} bytes: ask for less at a time.",
            )
        if len(encoded) % limits.DESCRIBED_AT_A_TIME == 0:
            await asyncio.sleep(0)
    return join_items(header.api_key, header.api_version, header.correlation_id, encoded)
