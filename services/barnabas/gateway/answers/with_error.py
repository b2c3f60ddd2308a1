"""For any request, the answer in which everything that was asked for carries one error code.

Most answers have one place for an error of the request as a whole. The others have a place for each topic, partition,
group or resource that was asked for, so the answer repeats them; `error_rows` says which of the request's fields it
repeats where. The shapes are those that Kafka's AbstractRequest.getErrorResponse gives.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.gateway.answers.error_rows import ROWS, TOP_VALUES, Rows
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.produce import API_KEY as PRODUCE
from barnabas.wire.responses import Body
from barnabas.wire.schema import response_schema

_NO_ACKS: Final = 0


def error_answer(api_key: int, version: int, asked: Any, code: ErrorCode, message: str = "") -> Body | None:
    """The body of the answer to the decoded request `asked`, for `encode_response`.

    None for Produce with acks=0, which has no answer: then, as in Kafka, only the end of the connection tells the
    client. DescribeLogDirs before version 3 has no place for a code: as in Kafka, its answer is empty.
    """
    if api_key == PRODUCE and asked.acks == _NO_ACKS:
        return None
    fields = response_schema(api_key, version).__dataclass_fields__
    rows = [row for row in ROWS.get(api_key, ()) if row.first <= version <= row.last and row.answer in fields]
    error = {"error_code": code, "error_message": message or None}
    return {
        **TOP_VALUES.get(api_key, {}),
        **error,
        **{row.answer: list(_repeat(row, asked, error)) for row in rows},
        **({"session_id": asked.session_id} if hasattr(asked, "session_id") else {}),
    }


def top_error_answer(api_key: int, version: int, code: ErrorCode, message: str) -> Body | None:
    """The same where the request could not be decoded: None if the answer would have to repeat parts of it."""
    if "error_code" not in response_schema(api_key, version).__dataclass_fields__:
        return None
    return {**TOP_VALUES.get(api_key, {}), "error_code": code, "error_message": message or None}


def _repeat(rows: Rows, asked: Any, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of the answer for each thing that `asked` names, without the second of two alike where those merge."""
    seen = set()
    for item in _items(rows, asked):
        named = ((name, _plain(item, field)) for name, field in rows.identity)
        row = {name: value for name, value in named if value is not None}
        if rows.is_distinct:
            key = tuple(row.values())
            if key in seen:
                continue
            seen.add(key)
        row |= rows.values
        if rows.inner is None:
            row |= {**error, "partition_error_code": error["error_code"]}
        else:
            row[rows.inner.answer] = list(_repeat(rows.inner, item, error))
        yield row


def _items(rows: Rows, asked: Any) -> Iterable[Any]:
    for path in rows.asked:
        yield from _follow(asked, path.split("/"))


def _follow(asked: Any, path: list[str]) -> Iterator[Any]:
    """Every element of the array at the end of `path`, through the arrays on the way."""
    for item in getattr(asked, path[0], None) or ():
        if len(path) == 1:
            yield item
        else:
            yield from _follow(item, path[1:])


def _plain(item: Any, field: str) -> Any:
    """A field of what was asked for as `encode_response` takes it; the thing itself where it is a name or a number."""
    if hasattr(item, "__dataclass_fields__"):
        item = getattr(item, field, None)
    if isinstance(item, uuid.UUID):
        return item.bytes
    if isinstance(item, tuple):  # the entity of a quota: an array of structures
        return [
            {name: _plain(part, name) for name in part.__dataclass_fields__}
            if hasattr(part, "__dataclass_fields__")
            else part
            for part in item
        ]
    return item
