"""A record with all that belongs to it as one line of JSON, and back: what `consume --output json` writes,
`produce --input json` reads.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestampType": "CreateTime",
     "headers": [["trace", "a1"]], "key": "k", "value": "v"}

Bytes that are UTF-8 are a string, others {"base64": "..."}, and null is null. The reader takes kcat's names too
("payload", "ts", a flat list of headers), and JSON of any other kind as a value, which it writes as JSON text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas.cli.refusal import Refused
from barnabas.cli.text.record_format import TIMESTAMP_TYPES

Header = tuple[str, bytes | None]
KCAT_TIMESTAMP_TYPES: Final = {1: "create", 2: "logappend"}
BASE64: Final = "base64"
TIMESTAMP_MAX: Final = 2**63 - 1


class EnvelopeRecord(NamedTuple):
    """What a line of JSON asks for; None where it says nothing. `timestamp` in ms."""

    topic: str | None
    partition: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def render_envelopes(messages: Sequence[Any]) -> bytes:
    """A line for each message."""
    return "".join([to_line(message) for message in messages]).encode()


def to_line(message: Any) -> str:
    """One message (of confluent_kafka, or with its methods) as a line of JSON."""
    kind, timestamp = message.timestamp()
    document = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "timestampType": TIMESTAMP_TYPES.get(kind, "NoTimestampType"),
        "headers": [[key, to_json(value)] for key, value in message.headers() or ()],
        "key": to_json(message.key()),
        "value": to_json(message.value()),
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def render_kcat_envelopes(messages: Sequence[Any]) -> bytes:
    """A line for each message with kcat's names; kcat's `broker` is not known here."""
    return "".join([_kcat_line(message) for message in messages]).encode()


def _kcat_line(message: Any) -> str:
    kind, timestamp = message.timestamp()
    headers = message.headers()
    document = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "tstype": KCAT_TIMESTAMP_TYPES.get(kind, "unknown"),
        "ts": timestamp if kind else 0,
        **(
            {"headers": [item for key, value in headers for item in (key, to_json(value))]} if headers else {}
        ),
        "key": to_json(message.key()),
        "payload": to_json(message.value()),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def from_line(line: bytes) -> EnvelopeRecord:
    """The record in a line of JSON; raises Refused that says what is wrong with it."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise Refused(f"not JSON ({error})") from error
    if not isinstance(document, dict):
        raise Refused("not a JSON object: write it as consume --output json does")
    timestamp = document.get("timestamp", document.get("ts"))
    partition = document.get("partition")
    if not isinstance(timestamp, int | None) or not isinstance(partition, int | None):
        raise Refused("timestamp (in ms) and partition must be whole numbers")
    if timestamp is not None and not -1 <= timestamp <= TIMESTAMP_MAX:
        raise Refused("the timestamp is out of range")
    is_append_time = document.get("timestampType", document.get("tstype")) in ("LogAppendTime", "logappend")
    return EnvelopeRecord(
        document.get("topic"),
        partition,
        None if timestamp == -1 or is_append_time else timestamp,
        from_json(document.get("key")),
        from_json(document.get("value", document.get("payload"))),
        tuple(_headers(document.get("headers") or ())),
    )


def to_json(data: bytes | None) -> Any:
    """A string, {"base64": ...} or None."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def from_json(value: Any) -> bytes | None:
    """The inverse of `to_json`; other JSON becomes its text."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and set(value) == {BASE64}:
            return base64.b64decode(value[BASE64], validate=True)
    except (UnicodeEncodeError, binascii.Error, TypeError, ValueError) as error:
        raise Refused(f"a string or its base64 is malformed ({error})") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(value: Any) -> list[Header]:
    if isinstance(value, dict):
        pairs = list(value.items())
    elif value and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = [(pair[0], pair[1]) for pair in value]
    elif len(value) % 2 == 0:
        pairs = list(zip(value[::2], value[1::2], strict=True))
    else:
        pairs = [(None, None)]
    if not all(isinstance(key, str) for key, _ in pairs):
        raise Refused('headers are [["name", "value"], ...]')
    return [(key, from_json(item)) for key, item in pairs]
