from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_message import StoredMessage

from barnabas.cli.refusal import Refused
from barnabas.cli.text.escapes import unescape
from barnabas.cli.text.record_format import compile_pieces, kafka_pieces, kcat_pieces, parse_format

MESSAGE = StoredMessage(pairs=(("trace", b"a1"), ("empty", None)))


def rendered(format_: str, *messages: StoredMessage, null: bytes = b"") -> bytes:
    return compile_pieces(parse_format(format_, null))(messages or (MESSAGE,))


def test_every_escape() -> None:
    assert rendered(r"%t[%p]@%o %k=%s %S %K %T %h%%\n") == (
        b"orders[2]@7 key=value 5 3 1700000000000 trace=a1,empty=NULL%\n"
    )
    assert rendered("%R%s") == struct.pack(">i", 5) + b"value"


def test_null_and_no_timestamp() -> None:
    tombstone = StoredMessage(data=None, name=None, stamp=(0, -1))
    assert rendered("%k,%s,%K,%S,%T,%h", tombstone) == b",,-1,-1,-1,"
    assert rendered("%k,%s", tombstone, null=b"NULL") == b"NULL,NULL"


def test_an_unknown_escape_is_refused() -> None:
    for format_ in ("%x", "100%"):
        with pytest.raises(Refused, match="not known"):
            parse_format(format_)


@given(
    st.lists(
        st.sampled_from(["%s", "%k", "%o", "%p", "%t", "%T", "%S", "%K", "%%", "é", " ", ":", r"\n", r"\x1f"])
    ),
    st.lists(
        st.builds(
            StoredMessage,
            data=st.none() | st.binary(max_size=9),
            name=st.none() | st.binary(max_size=9),
            where=st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 99), st.integers(0, 2**63 - 1)),
        ),
        max_size=4,
    ),
)
def test_a_format_is_the_sum_of_its_parts(parts: list[str], messages: list[StoredMessage]) -> None:
    expected = b"".join(rendered(part, message) for message in messages for part in parts)
    assert compile_pieces(parse_format("".join(parts)))(messages) == expected


def test_kcat_without_a_format() -> None:
    both = [MESSAGE, StoredMessage(data=b"second", name=None)]
    assert compile_pieces(kcat_pieces(b"\n", None, b""))(both) == b"value\nsecond\n"
    assert compile_pieces(kcat_pieces(b";", b":", b"NULL"))(both) == b"key:value;NULL:second;"


def test_kafka_properties_keep_kafkas_order() -> None:
    names = ("timestamp", "partition", "offset", "headers", "key")
    pieces = kafka_pieces({f"print.{name}": "true" for name in names})
    assert compile_pieces(pieces)([MESSAGE]) == (
        b"CreateTime:1700000000000\tPartition:2\tOffset:7\ttrace:a1,empty:null\tkey\tvalue\n"
    )
    bare = StoredMessage(data=None, stamp=(0, -1))
    pieces = kafka_pieces({"print.timestamp": "true", "print.headers": "true", "key.separator": "|"})
    assert compile_pieces(pieces)([bare]) == b"NO_TIMESTAMP|NO_HEADERS|null\n"


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(Refused, match=r"print\.keys is not known"):
        kafka_pieces({"print.keys": "true"})


def test_backslashes() -> None:
    assert unescape(r"a\tb\\n\x41\q") == rb"a" + b"\tb\\nA" + rb"\q"
