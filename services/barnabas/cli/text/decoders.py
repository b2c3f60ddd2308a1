"""Keys and values that are not text, made text: kcat's `-s` and the Java client's deserializers of fixed shapes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.record_format import Render

Decode = Callable[[bytes], bytes]
"""From bytes to text; raises ValueError for bytes of another shape."""

_JAVA_SHAPES: Final = {
    "Short": ">h",
    "Integer": ">i",
    "Long": ">q",
    "Float": ">f",
    "Double": ">d",
    "Boolean": ">?",
}
_JAVA_BYTES: Final = ("String", "ByteArray", "Bytes", "ByteBuffer")
JAVA_ENDINGS: Final = ("Deserializer", "Decoder")
PACK_LETTERS: Final = frozenset("<>bBhHiIqQcs$ ")


def decoder(name: str) -> Decode:
    """The decoder that a Java class or one of kcat's pack strings names. Raises Refused for any other."""
    short = name.rpartition(".")[2]
    for ending in JAVA_ENDINGS:
        if short.endswith(ending):
            return _java_decoder(name, short.removesuffix(ending))
    if name and set(name) <= PACK_LETTERS:
        return lambda data: unpack(name, data)
    raise usage(
        f"{name!r} decodes nothing: give one of kcat's pack strings such as '>q' or 's', or the class of a Java "
        f"deserializer of {', '.join([*_JAVA_BYTES, *_JAVA_SHAPES, 'UUID'])}"
    )


def unpack(letters: str, data: bytes) -> bytes:
    """The fields of `data` by kcat's letters, one after the other. Big endian unless `<` says otherwise."""
    order, at = ">", 0
    words: list[bytes] = []
    for letter in letters.replace(" ", ""):
        if letter in "<>":
            order = letter
        elif letter == "$":
            if at < len(data):
                raise ValueError(f"{len(data) - at} bytes more than expected")
        elif letter == "s":
            words.append(data[at:])
            at = len(data)
        elif letter == "c":
            words.append(_taken(data, at, 1))
            at += 1
        else:
            field = struct.Struct(order + letter)
            words.append(b"%d" % field.unpack(_taken(data, at, field.size))[0])
            at += field.size
    return b"".join(words)


def decoding(render: Render, key: Decode | None, value: Decode | None, *, skips_errors: bool) -> Render:
    """`render` for decoded keys and values. Bytes of another shape raise Refused, or their record is left out."""

    def decoded(messages: Sequence[Any]) -> bytes:
        shown = []
        for message in messages:
            try:
                shown.append(_Decoded(message, key, value))
            except ValueError as error:
                if not skips_errors:
                    raise Refused(
                        f"{message.topic()}-{message.partition()} at offset {message.offset()} cannot be decoded "
                        f"({error}): leave such records out with --skip-message-on-error"
                    ) from error
        return render(shown)

    return decoded


class _Decoded:
    """A message whose key and value are text; all else is the message's own."""

    def __init__(self, message: Any, key: Decode | None, value: Decode | None) -> None:
        self._message = message
        self._key = _applied(key, message.key())
        self._value = _applied(value, message.value())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


def _applied(decode: Decode | None, data: bytes | None) -> bytes | None:
    return data if decode is None or data is None else decode(data)


def _java_decoder(name: str, kind: str) -> Decode:
    if kind in _JAVA_BYTES or (kind == "Default" and name.endswith("Decoder")):
        return lambda data: data
    if kind == "UUID":
        return lambda data: str(uuid.UUID(data.decode())).encode()
    if kind not in _JAVA_SHAPES:
        raise usage(
            f"{name} is a class that only a JVM can load: known are those of Kafka for "
            f"{', '.join([*_JAVA_BYTES, *_JAVA_SHAPES, 'UUID'])}"
        )
    shape = struct.Struct(_JAVA_SHAPES[kind])

    def decode(data: bytes) -> bytes:
        if len(data) != shape.size:
            raise ValueError(f"{len(data)} bytes where {kind} has {shape.size}")
        value = shape.unpack(data)[0]
        return (str(value).lower() if kind == "Boolean" else str(value)).encode()

    return decode


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError(f"{len(data)} bytes are too few")
    return data[at : at + size]
