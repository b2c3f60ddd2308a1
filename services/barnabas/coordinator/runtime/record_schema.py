"""What the records of every kind of coordinator have in common: Kafka's types after a version, by kio's codecs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field
from io import BytesIO
from typing import Any, ClassVar, Final

from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16

VERSION: Final = struct.Struct(">h")
"""What every key and value starts with: of a key, what it is about; of a value, its version."""


def wire(kafka_type: str, **more: Any) -> Any:
    """A dataclass field of the Kafka type given; `tag` is its number if it is a tagged one."""
    tag = more.pop("tag", None)
    metadata = {"kafka_type": kafka_type} if tag is None else {"kafka_type": kafka_type, "tag": tag}
    return field(metadata=metadata, **more)


class Data:
    """What kio asks of every message."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False


def write_versioned(version: int, entity: Any) -> bytes:
    """The bytes of `entity` after its version."""
    buffer = BytesIO()
    buffer.write(VERSION.pack(version))
    write: Callable[[BytesIO, Any], None] = entity_writer(type(entity))
    write(buffer, entity)
    return buffer.getvalue()
