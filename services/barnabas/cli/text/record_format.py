"""Records as text: kcat's format language and the properties of Kafka's console consumer, both compiled once.

A format becomes a list of pieces, constant bytes or functions of a message; a batch of messages becomes one `bytes`,
so that one write puts it out.

    %s value   %S its length, -1 for null    %R its length as 4 bytes, big endian
    %k key     %K its length, -1 for null
    %t topic   %p partition   %o offset   %T timestamp in ms   %h headers as k=v,k=v
    %% a percent sign; \\n \\r \\t \\xNN as in a string
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.cli.refusal import usage
from barnabas.cli.text.escapes import unescape

Piece = bytes | Callable[[Any], bytes]
Render = Callable[[Sequence[Any]], bytes]
"""From messages to the bytes of all of them."""

TIMESTAMP_TYPES: Final = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}

KAFKA_PROPERTIES: Final = frozenset(
    {
        "print.timestamp",
        "print.key",
        "print.value",
        "print.epoch",
        "print.offset",
        "print.partition",
        "print.headers",
        "key.separator",
        "line.separator",
        "headers.separator",
        "null.literal",
    }
)
"""What Kafka's DefaultMessageFormatter knows, but for deserializers."""

_LENGTH = struct.Struct(">i")


def parse_format(text: str, null: bytes = b"") -> list[Piece]:
    """The pieces of a kcat format; `null` stands for a null key or value. Raises Refused for an unknown escape."""
    pieces: list[Piece] = []
    constant = ""
    rest = iter(text)
    for character in rest:
        if character != "%":
            constant += character
            continue
        letter = next(rest, "")
        if letter == "%":
            constant += "%"
            continue
        piece = _escape(letter, null)
        if constant:
            pieces.append(unescape(constant))
            constant = ""
        pieces.append(piece)
    if constant:
        pieces.append(unescape(constant))
    return pieces


def kcat_pieces(
    delimiter: bytes, key_separator: bytes | None, null: bytes, *, has_offset: bool = False
) -> list[Piece]:
    """What kcat prints without a format: the value, with the key in front when there is a separator."""
    between = b"\t" if key_separator is None else key_separator
    front: list[Piece] = [_escape("o", null), between] if has_offset else []
    if key_separator is not None:
        front += [_escape("k", null), between]
    return [*front, _escape("s", null), delimiter]


def formatter_pieces(formatter: str, properties: Mapping[str, str]) -> list[Piece]:
    """What one of Kafka's formatter classes prints. Raises Refused for a class that is not known here."""
    name = formatter.rpartition(".")[2]
    if name == "NoOpMessageFormatter":
        return []
    if name not in ("", "DefaultMessageFormatter", "LoggingMessageFormatter"):
        raise usage(
            f"--formatter {formatter} is a class that only a JVM can load: use --format or --output json"
        )
    return kafka_pieces(properties)


def kafka_pieces(properties: Mapping[str, str]) -> list[Piece]:
    """What Kafka's console consumer prints for `--property`s: timestamp, partition, offset, headers, key, value.

    Raises Refused for a property that it does not have.
    """
    for name in properties:
        if name not in KAFKA_PROPERTIES:
            raise usage(f"--property {name} is not known: {', '.join(sorted(KAFKA_PROPERTIES))}")
    separator = unescape(properties.get("key.separator", "\\t"))
    null = unescape(properties.get("null.literal", "null"))
    between = unescape(properties.get("headers.separator", ","))
    known: list[tuple[str, str, Callable[[Any], bytes]]] = [
        ("print.timestamp", "false", _typed_timestamp),
        ("print.partition", "false", lambda message: b"Partition:%d" % message.partition()),
        ("print.offset", "false", lambda message: b"Offset:%d" % message.offset()),
        ("print.epoch", "false", _epoch),
        ("print.headers", "false", lambda message: _kafka_headers(message, between, null)),
        ("print.key", "false", _escape("k", null)),
        ("print.value", "true", _escape("s", null)),
    ]
    pieces: list[Piece] = []
    for name, default, piece in known:
        if properties.get(name, default).lower() == "true":
            pieces += [separator, piece] if pieces else [piece]
    return [*pieces, unescape(properties.get("line.separator", "\\n"))]


def compile_pieces(pieces: Sequence[Piece]) -> Render:
    """One function for whole batches; short formats get a loop of their own, since they carry the most records."""
    if len(pieces) == 2 and callable(pieces[0]) and isinstance(pieces[1], bytes):
        value, end = pieces[0], pieces[1]
        return lambda messages: b"".join([value(message) + end for message in messages])

    def render(messages: Sequence[Any]) -> bytes:
        return b"".join(
            [
                piece if isinstance(piece, bytes) else piece(message)
                for message in messages
                for piece in pieces
            ]
        )

    return render


def _escape(letter: str, null: bytes) -> Callable[[Any], bytes]:
    known: dict[str, Callable[[Any], bytes]] = {
        "s": (lambda message: _or_null(message.value(), null))
        if null
        else (lambda message: message.value() or b""),
        "k": (lambda message: _or_null(message.key(), null))
        if null
        else (lambda message: message.key() or b""),
        "S": lambda message: b"%d" % _size(message.value()),
        "K": lambda message: b"%d" % _size(message.key()),
        "R": lambda message: _LENGTH.pack(_size(message.value())),
        "t": lambda message: message.topic().encode(),
        "p": lambda message: b"%d" % message.partition(),
        "o": lambda message: b"%d" % message.offset(),
        "T": lambda message: b"%d" % (message.timestamp()[1] if message.timestamp()[0] else -1),
        "h": lambda message: b",".join(
            key.encode() + b"=" + (b"NULL" if value is None else value)
            for key, value in message.headers() or ()
        ),
    }
    if letter not in known:
        raise usage(f"the format has %{letter}, which is not known: %{', %'.join(known)} and %%")
    return known[letter]


def _or_null(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _typed_timestamp(message: Any) -> bytes:
    kind, milliseconds = message.timestamp()
    name = TIMESTAMP_TYPES.get(kind, "NoTimestampType")
    return f"{name}:{milliseconds}".encode() if kind else b"NO_TIMESTAMP"


def _epoch(message: Any) -> bytes:
    epoch = message.leader_epoch()
    return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch


def _kafka_headers(message: Any, separator: bytes, null: bytes) -> bytes:
    headers = message.headers()
    if not headers:
        return b"NO_HEADERS"
    return separator.join(key.encode() + b":" + _or_null(value, null) for key, value in headers)
