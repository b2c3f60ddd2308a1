from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.refusal import Refused
from barnabas.cli.text import pieces
from barnabas.cli.text.record_input import line_reader, parse_header, shape_of


def read(
    line: bytes, key_separator: str | None = None, *, null: bool = False, **properties: str
) -> tuple[object, ...]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    record = line_reader(shape_of(named, key_separator, is_empty_null=null))(line)
    return record.headers, record.key, record.value


def test_a_line_is_a_value() -> None:
    assert shape_of({}, None, is_empty_null=False).is_value_only
    assert read(b"a\tb") == ((), None, b"a\tb")


def test_kcats_keys() -> None:
    assert read(b"k:v:w", ":") == ((), b"k", b"v:w")
    assert read(b"no key", ":") == ((), None, b"no key")
    assert read(b"k:", ":") == ((), b"k", b"")
    assert read(b"k:", ":", null=True) == ((), b"k", None)
    assert read(b":v", ":", null=True) == ((), None, b"v")
    assert read(b"k||v", "||") == ((), b"k", b"v")


def test_kafkas_properties() -> None:
    everything = {"parse_key": "true", "parse_headers": "true", "null_marker": "NULL"}
    assert read(b"a:1,b:NULL\tk\tv", **everything) == ((("a", b"1"), ("b", None)), b"k", b"v")
    assert read(b"NULL\tNULL\tNULL", **everything) == ((), None, None)
    assert read(b"k=v", parse_key="true", key_separator="=") == ((), b"k", b"v")


def test_a_line_without_its_separator() -> None:
    with pytest.raises(Refused, match="no key separator"):
        read(b"alone", parse_key="true")
    with pytest.raises(Refused, match="no headers"):
        read(b"alone", parse_headers="true")
    with pytest.raises(Refused, match="no separator in the header 'a'"):
        read(b"a\tv", parse_headers="true")
    assert read(b"alone", parse_key="true", ignore_error="true") == ((), None, b"alone")


def test_unknown_properties_are_refused() -> None:
    with pytest.raises(Refused, match=r"parse\.keys"):
        shape_of({"parse.keys": "true"}, None, is_empty_null=False)


def test_headers_from_flags() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(Refused):
        parse_header("=b")


@given(
    st.lists(st.binary(max_size=12), max_size=8),
    st.sampled_from([b"\n", b"||", b"abc"]),
    st.integers(1, 7),
)
def test_input_is_cut_wherever_the_chunks_end(values: list[bytes], delimiter: bytes, chunk: int) -> None:
    data = delimiter.join(values)
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    expected = data.split(delimiter)
    if not expected[-1]:
        expected.pop()
    normal = pieces.READ_BYTES
    pieces.READ_BYTES = chunk  # type: ignore[misc]
    try:
        found = [piece for some in pieces.split_input(reading, delimiter) for piece in some]
    finally:
        pieces.READ_BYTES = normal  # type: ignore[misc]
        os.close(reading)
    assert found == expected
