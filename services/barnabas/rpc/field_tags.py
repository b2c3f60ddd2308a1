"""What stands before a field in an encoded protobuf message, for frames that are put together by hand."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

_LENGTH_DELIMITED: Final = 2
_ONE_BYTE_NUMBERS: Final = 16


def length_delimited_tag(message: type[Message], field: str) -> bytes:
    """The tag of a bytes, string or message field; its length and its value follow."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    assert number < _ONE_BYTE_NUMBERS, "a tag of one byte"
    return bytes([number << 3 | _LENGTH_DELIMITED])
