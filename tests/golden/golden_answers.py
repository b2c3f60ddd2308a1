"""Decoded answers as plain data, with what must differ between two clusters replaced by labels.

Ids become labels in the order in which a scenario first sees them, so that two fields with the same id still show the
same label. Times near the present become `<now>`, texts of error messages `<text>` (whether there is one stays), and
the cluster's own address `<broker>`.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import time
import uuid
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from barnabas.records.batch import CRC_START, HEADER_SIZE, crc_of_tail, parse_header
from barnabas.records.record import decode_records

Plain = Any
"""None, bool, int, float, str, lists and dicts of them."""

_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_NOW_WITHIN_MS: Final = 3_600_000
_GENERATED_MEMBER: Final = re.compile(
    r"^(.*)-[0-9A-Za-z]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
)

_BYTES: Final = frozenset({"total_bytes", "usable_bytes"})
"""How large a disk is, and how full: only whether it is known."""

IDENTITIES: Final = (
    "api_key", "name", "topic", "topic_name", "topic_id", "group_id", "member_id", "resource_name",
    "partition_index", "partition", "index", "feature", "key", "node_id", "broker_id", "log_dir", "replica_id", "user",
    "transactional_id", "producer_id",
)  # fmt: skip
"""The fields that say which row of a list a row is, the strongest first: rows are compared by them, not by place."""


_ORDERED: Final = frozenset({"replica_nodes", "replicas"})
"""Lists of brokers whose order says something: the first one is the preferred leader."""


class Labels:
    """Owns the labels of one scenario on one cluster. `topic_ids` are the cluster's own, by id; `ports` those of its
    brokers, where there are several."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        topic_ids: Mapping[uuid.UUID, str],
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._brokers = {number: broker for broker, number in (ports or {}).items()}
        self._topic_ids = topic_ids
        self._labels: dict[tuple[str, Any], str] = {}

    def label(self, kind: str, value: Any) -> str:
        """The same label for the same value."""
        known = (kind, value)
        if known not in self._labels:
            count = sum(1 for other, _ in self._labels if other == kind)
            self._labels[known] = f"<{kind} {count + 1}>"
        return self._labels[known]

    def plain(self, value: Any, field: str = "") -> Plain:
        """`value`, the field `field` of an answer, as plain data with labels."""
        if dataclasses.is_dataclass(value):
            return {
                entry.name: self.plain(getattr(value, entry.name), entry.name)
                for entry in dataclasses.fields(value)
            }
        if isinstance(value, Mapping):
            return {name: self.plain(item, name) for name, item in value.items()}
        if field in _ORDERED and all(isinstance(broker, int) for broker in value or ()):
            return None if value is None else ", ".join(map(str, value))
        if field == "entity":
            value = sorted(value, key=lambda part: part.entity_type)
        if isinstance(value, tuple | list):
            return [self.plain(item, field) for item in value]
        if isinstance(value, Enum):
            return value.name.upper()
        if isinstance(value, datetime.timedelta):
            return value // _MILLISECOND
        if isinstance(value, datetime.datetime):
            return self._time((value - _EPOCH) // _MILLISECOND)
        if isinstance(value, uuid.UUID):
            return self._uuid(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._batches(bytes(value)) if field == "records" else bytes(value).decode("latin-1")
        if isinstance(value, str):
            return self._text(value, field)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(value, field)
        return value

    def _number(self, value: int, field: str) -> Plain:
        if field == "port" and value in self._brokers:
            return f"<port of {self._brokers[value]}>"
        if field == "port" and value == self._port:
            return "<port>"
        if field == "controller_id" and value in self._brokers.values():
            return "<a broker>"  # brokers that cannot be controllers name any of them (KIP-631)
        if field == "producer_id" and value >= 0:
            return self.label("producer", value)
        if field == "subscription_id" and value != 0:
            return self.label("subscription", value)
        if field == "session_id" and value != 0:
            return self.label("session", value)
        if field in _BYTES and value > 0:
            return "<bytes>"
        if "timestamp" in field:
            return self._time(value)
        return value

    def _time(self, value: int) -> Plain:
        return "<now>" if abs(value - time.time() * 1000) < _NOW_WITHIN_MS else value

    def _uuid(self, value: uuid.UUID) -> str:
        if value in self._topic_ids:
            return f"<id of {self._topic_ids[value]}>"
        return str(value) if value.bytes[:12] == bytes(12) else self.label("uuid", value)

    def _text(self, value: str, field: str) -> str:
        if field.endswith("error_message"):
            return "<text>" if value else ""
        if field == "host" and value == self._host:
            return "<host>"
        if field == "log_dir":
            return self.label("directory", value)
        if field == "cluster_id":
            return self.label("cluster", value)
        if match := _GENERATED_MEMBER.match(value):
            return f"{match[1]}-{self.label('member', value)}"
        return value

    def _batches(self, data: bytes) -> list[Plain]:
        """Every batch in `data`, header and records; a cut one at the end by its size."""
        found: list[Plain] = []
        while data:
            if len(data) < HEADER_SIZE or (header := parse_header(data)).size_in_bytes > len(data):
                found.append(f"<{len(data)} bytes of a batch>")
                break
            batch, data = data[: header.size_in_bytes], data[header.size_in_bytes :]
            row = {name: self._batch_field(name, value) for name, value in header._asdict().items()}
            row["crc"] = header.crc == crc_of_tail(batch[CRC_START:])
            row["records"] = [
                [
                    record.offset,
                    self._time(record.timestamp),
                    repr(record.key),
                    repr(record.value),
                    repr(record.headers),
                ]
                for record in decode_records(batch)
            ]
            found.append(row)
        return found

    def _batch_field(self, name: str, value: int) -> Plain:
        return self._time(value) if name.endswith("timestamp") else self._number(value, name)


def rows_by_identity(rows: list[Plain]) -> dict[str, Plain]:
    """The rows of a list under what tells them apart: their identity fields, else their place."""
    named: dict[str, Plain] = {}
    for place, row in enumerate(rows):
        name = _identity(row) if isinstance(row, dict) else str(row)
        name = str(place) if name is None else name
        count = 2
        unique = name
        while unique in named:
            unique, count = f"{name}#{count}", count + 1
        named[unique] = row
    return named


def _identity(row: Mapping[str, Plain]) -> str | None:
    if "entity" in row:
        return "+".join(sorted(f"{part['entity_type']}={part['entity_name']}" for part in row["entity"]))
    if "resource_type" in row:
        return f"{row['resource_type']}:{row['resource_name']}"
    found = (row[field] for field in IDENTITIES if row.get(field) is not None)
    identity = next((str(value).replace("/", "|") for value in found), None)
    # A topic is the same row whether a version names it or gives its id.
    return identity.removeprefix("<id of ").removesuffix(">") if identity else identity
