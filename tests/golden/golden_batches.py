"""Record batches for the session: whole ones, and ones broken in one place each."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from golden_session import Run, TopicRef

from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.record import encode_batch

PRODUCE: Final = 0
SOME_TIME_MS: Final = 1_700_000_000_000
"""When the records say that they were made: long enough ago that no time index and no label takes it for now."""


def batch(*values: bytes | None, key: bytes | None = b"key", at: int = SOME_TIME_MS, **fields: Any) -> bytes:
    """A good batch with a record a value; `fields` as `encode_batch` has them."""
    records = [(at + index, key, value, ()) for index, value in enumerate(values or (b"value",))]
    return encode_batch(records, **fields)


def some_bad(
    *, key: bytes | None = b"key", at: int = SOME_TIME_MS, bad_at: int = SOME_TIME_MS, compression: int = 0
) -> bytes:
    """Five records, of which the second has this key and the fourth was made at `bad_at`."""
    keys = [b"key", key, b"key", b"key", b"key"]
    times = [at, at, at, bad_at, at]
    return encode_batch(
        [(*parts, b"value", ()) for parts in zip(times, keys, strict=True)], compression=compression
    )


def patched(form: str, at: int, *values: int, count: int = 2) -> bytes:
    """A good batch of `count` records with one header field changed and the CRC right again."""
    data = bytearray(batch(*[b"value"] * count))
    struct.pack_into(form, data, at, *values)
    struct.pack_into(">I", data, 17, crc_of_tail(bytes(data[CRC_START:])))
    return bytes(data)


def produce_body(
    topic: TopicRef,
    batches: Mapping[int, bytes | None],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    """A Produce request's body for any version."""
    data = [{"index": partition, "records": records} for partition, records in batches.items()]
    row = {"name": topic.name, "topic_id": topic.topic_id, "partition_data": data}
    return {"acks": acks, "timeout": 10_000, "transactional_id": transactional_id, "topic_data": [row]}


def produce(run: Run, topic: TopicRef, batches: Mapping[int, bytes]) -> None:
    """Append without recording; every batch must be taken."""
    answer = run.quietly(PRODUCE, produce_body(topic, batches))
    codes = [part.error_code for row in answer.responses for part in row.partition_responses]
    assert not any(codes), codes
