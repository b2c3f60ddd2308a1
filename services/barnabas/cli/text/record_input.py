"""Records from text: lines with keys and headers as kcat and Kafka's console producer read them, or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.envelope import EnvelopeRecord, Header, from_line
from barnabas.cli.text.escapes import unescape

KAFKA_PROPERTIES: Final = frozenset(
    {
        "parse.key",
        "key.separator",
        "parse.headers",
        "headers.delimiter",
        "headers.separator",
        "headers.key.separator",
        "null.marker",
        "ignore.error",
    }
)
"""What Kafka's LineMessageReader knows."""

Read = Callable[[bytes], EnvelopeRecord]
"""From one piece of input to its record; raises Refused when it is not as the flags say."""


@dataclass(frozen=True)
class LineShape:
    """How a line is taken apart, after Kafka's LineMessageReader: headers, key, value, in this order."""

    has_key: bool = False
    key_separator: bytes = b"\t"
    has_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    header_key_separator: bytes = b":"
    null_marker: bytes | None = None
    is_empty_null: bool = False
    is_lenient: bool = False
    """Whether a line without a separator is a value alone, as for kcat, and not an error."""

    @property
    def is_value_only(self) -> bool:
        """Whether a line is the value as it stands: the fast way."""
        return not (self.has_key or self.has_headers or self.is_empty_null) and self.null_marker is None


def shape_of(properties: Mapping[str, str], key_separator: str | None, *, is_empty_null: bool) -> LineShape:
    """The shape that -K, -Z and --property describe. Raises Refused for a property that is not known."""
    for name in properties:
        if name not in KAFKA_PROPERTIES:
            raise usage(f"--property {name} is not known: {', '.join(sorted(KAFKA_PROPERTIES))}")
    ignores_errors = _is_true(properties, "ignore.error")
    marker = properties.get("null.marker")
    separator = properties.get("key.separator", "\\t") if key_separator is None else key_separator
    return LineShape(
        has_key=key_separator is not None or _is_true(properties, "parse.key"),
        key_separator=unescape(separator),
        has_headers=_is_true(properties, "parse.headers"),
        headers_delimiter=unescape(properties.get("headers.delimiter", "\\t")),
        headers_separator=unescape(properties.get("headers.separator", ",")),
        header_key_separator=unescape(properties.get("headers.key.separator", ":")),
        null_marker=None if marker is None else unescape(marker),
        is_empty_null=is_empty_null,
        is_lenient=key_separator is not None or ignores_errors,
    )


def line_reader(shape: LineShape) -> Read:
    """A function that takes a line apart."""

    def is_null(data: bytes) -> bool:
        return data == shape.null_marker or (shape.is_empty_null and not data)

    def read(line: bytes) -> EnvelopeRecord:
        headers: tuple[Header, ...] = ()
        key: bytes | None = None
        if shape.has_headers:
            text, separator, rest = line.partition(shape.headers_delimiter)
            if separator:
                headers, line = _headers(text, shape), rest
            elif not shape.is_lenient:
                raise Refused("no headers' delimiter in the line")
        if shape.has_key:
            text, separator, rest = line.partition(shape.key_separator)
            if separator:
                key, line = (None if is_null(text) else text), rest
            elif not shape.is_lenient:
                raise Refused("no key separator in the line")
        return EnvelopeRecord(None, None, None, key, None if is_null(line) else line, headers)

    return read


def json_reader() -> Read:
    """A function that reads JSON lines."""
    return from_line


def parse_header(text: str) -> Header:
    """`name=value` of -H; a name alone has the value null, as for kcat."""
    name, separator, value = text.partition("=")
    if not name:
        raise usage(f"-H {text!r} names no header: write it as NAME=VALUE")
    return name, value.encode(errors="surrogateescape") if separator else None


def _headers(text: bytes, shape: LineShape) -> tuple[Header, ...]:
    headers: list[Header] = []
    if text == shape.null_marker or not text:
        return ()
    for pair in text.split(shape.headers_separator):
        name, separator, value = pair.partition(shape.header_key_separator)
        if not separator and not shape.is_lenient:
            raise Refused(f"no separator in the header {pair.decode(errors='replace')!r}")
        headers.append((name.decode(errors="replace"), None if value == shape.null_marker else value))
    return tuple(headers)


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "false").lower() == "true"
