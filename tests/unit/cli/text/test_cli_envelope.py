from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_message import StoredMessage

from barnabas.cli.refusal import Refused
from barnabas.cli.text.envelope import from_line, render_envelopes, to_line

DATA = (
    st.none() | st.binary(max_size=20) | st.text(max_size=10).map(lambda text: text.encode(errors="replace"))
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(DATA, DATA, st.lists(st.tuples(NAMES, DATA), max_size=3), st.integers(0, 2**62))
def test_what_consume_writes_produce_reads(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    message = StoredMessage(value, key, tuple(headers), (1, timestamp), ("t", 3, 9))
    (line,) = render_envelopes([message]).splitlines()
    record = from_line(line)
    assert (record.topic, record.partition, record.timestamp) == ("t", 3, timestamp)
    assert (record.key, record.value, record.headers) == (key, value, tuple(headers))


def test_a_line_can_be_read_by_a_person() -> None:
    message = StoredMessage(b"\xff\xfe", None, (("a", b"1"),), (2, 5))
    assert json.loads(to_line(message)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 5,
        "timestampType": "LogAppendTime",
        "headers": [["a", "1"]],
        "key": None,
        "value": {"base64": "//4="},
    }


def test_a_time_that_the_broker_gave_is_not_sent_back() -> None:
    assert from_line(to_line(StoredMessage(stamp=(2, 5))).encode()).timestamp is None
    assert from_line(to_line(StoredMessage(stamp=(0, -1))).encode()).timestamp is None


def test_kcats_names_and_json_values() -> None:
    record = from_line(
        b'{"payload": {"a": [1, "\xc3\xa9"]}, "ts": 7, "headers": ["x", "1", "y", null], "key": 5}'
    )
    assert record.value == '{"a":[1,"é"]}'.encode()
    assert (record.timestamp, record.key) == (7, b"5")
    assert record.headers == (("x", b"1"), ("y", None))
    assert from_line(b'{"headers": {"a": "b"}}').headers == (("a", b"b"),)


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b'{"timestamp": "now"}',
        b'{"timestamp": -5}',
        b'{"value": {"base64": "?"}}',
        b'{"value": {"base64": 7}}',
        b'{"key": "\\ud800"}',
        b'{"headers": ["a"]}',
        b'{"headers": [[1, "a"]]}',
    ],
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(Refused):
        from_line(line)
