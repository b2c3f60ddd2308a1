"""Encoding answers: small ones at once, large ones in slices, so that others are served meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Generator

from barnabas.gateway import limits
from barnabas.gateway.answers.cluster_faults import error_codes
from barnabas.gateway.request import Request
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.wire.requests import RequestHeader
from barnabas.wire.response_slices import count_rows, encode_in_slices
from barnabas.wire.responses import Body, encode_response


async def encode_answer(
    request: Request, body: Body, bytes_max: int = sys.maxsize, error: ErrorCode | None = None
) -> bytes:
    """The whole frame for `body`, whose arrays may be `Rows`. The error codes in it are counted, as one where the whole
    request failed with `error`.

    An answer of more than ROWS_AT_A_TIME takes turns with other such ones: those of many clients would take the loop's
    time together, and memory. What is there of it counts for the gateway's budget.

    Raises KafkaError, INVALID_REQUEST, where it would be larger than `bytes_max`.
    """
    header, times = request.header, request.times
    if error is not None:
        times.count_error(error)
    small = encode_small(header, body, times if error is None else None)
    if small is not None:
        return small

    def count_errors(part: Body) -> None:
        if error is None:
            for code in error_codes(part):
                times.count_error(code)

    slices = encode_in_slices(
        *(header.api_key, header.api_version, header.correlation_id, body),
        *(limits.ROWS_AT_A_TIME, count_errors),
    )
    try:
        size_bytes = next(slices)
    except StopIteration as end:
        frame: bytes = end.value
        return _checked(frame, bytes_max)
    return await _encode_the_rest(request, slices, size_bytes, bytes_max)


def encode_small(header: RequestHeader, body: Body, times: RequestTimes | None) -> bytes | None:
    """The whole frame for `body`, where that takes no turns with others; its error codes are counted in `times`."""
    if count_rows(body, limits.ROWS_AT_A_TIME) > limits.ROWS_AT_A_TIME:
        return None
    if times is not None:
        for code in error_codes(body):
            times.count_error(code)
    return encode_response(header.api_key, header.api_version, header.correlation_id, body)


async def _encode_the_rest(
    request: Request, slices: Generator[int, None, bytes], size_bytes: int, bytes_max: int
) -> bytes:
    with request.parts.large_answers.begin(request.parts.budget) as answer:
        try:
            while True:
                _check_size(size_bytes, bytes_max)
                answer.grew(size_bytes)
                await answer.wait_for_turn()
                size_bytes = next(slices)
        except StopIteration as end:
            frame: bytes = end.value
            return _checked(frame, bytes_max)


def _checked(frame: bytes, bytes_max: int) -> bytes:
    _check_size(len(frame), bytes_max)
    return frame


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"The answer would be larger than {bytes_max} bytes: ask for less at a time.",
        )
