"""What stands in the nodes' files in the end, read with nothing but the format, held against what clients were told.

Of copies, which are written in transactions, that includes who committed what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from history import History, Judge, Place
from log_checks import Log, check_agreement, check_log

from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.control import decode_marker
from barnabas.records.record import decode_records


def read_files(judge: Judge, folder: Path, described: str) -> Log:
    """All records of one replica, from its first segment to its last."""
    found: Log = {}
    for file in sorted(folder.glob("*.log")):
        data = file.read_bytes()
        end = 0
        for position, header in iterate_headers(data):
            end = position + header.size_in_bytes
            batch = data[position:end]
            if len(batch) < header.size_in_bytes or not crc_is_valid(batch):
                judge.violate(f"{described}: the batch at {header.base_offset} is damaged")
                break
            for record in decode_records(batch):
                if found and record.offset != len(found):
                    judge.violate(f"{described}: offset {len(found)} is missing, {record.offset} is there")
                found[record.offset] = record.value or b"", header.partition_leader_epoch
        if end != len(data):
            judge.violate(f"{described}: {len(data) - end} bytes at the end of {file.name} are no batch")
    return found


def check_files(judge: Judge, history: History, nodes: Mapping[str, Path], places: Sequence[Place]) -> int:
    """Every node has every partition, whole and equal; returns how many records there are."""
    count = 0
    for place in places:
        logs = {
            name: read_files(judge, folder / str(place), f"{place} at {name}")
            for name, folder in nodes.items()
        }
        for name, log in logs.items():
            check_log(
                judge,
                history,
                place,
                log,
                f"{place} at {name} ({len(log)} records)",
                is_one_enough=len(nodes) == 1,
            )
        longest = max(map(len, logs.values()))
        check_agreement(judge, place, logs, range(longest))
        count += longest
    return count


@dataclass(slots=True)
class Copies:
    """A log of transactions as it is told by its batches and markers."""

    committed: dict[int, bytes] = field(default_factory=dict)
    """Values by offset."""
    aborted: dict[int, bytes] = field(default_factory=dict)
    open: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """Of each producer, what no marker has decided."""

    @classmethod
    def of(cls, folder: Path) -> Copies:
        """All of one replica."""
        found = cls()
        for file in sorted(folder.glob("*.log")):
            data = file.read_bytes()
            for position, header in iterate_headers(data):
                batch = data[position : position + header.size_in_bytes]
                if header.is_control:
                    marker = decode_marker(batch)
                    decided = found.open.pop(header.producer_id, {})
                    is_commit = marker is not None and marker.committed
                    (found.committed if is_commit else found.aborted).update(decided)
                else:
                    values = {each.offset: each.value or b"" for each in decode_records(batch)}
                    found.open.setdefault(header.producer_id, {}).update(values)
        return found


def check_copies(
    judge: Judge,
    read: Mapping[Place, Mapping[int, bytes]],
    nodes: Mapping[str, Path],
    places: Sequence[Place],
) -> tuple[int, int]:
    """What was read as committed is what is committed, at every node, and nothing is open.

    Returns how many records are committed, and how many were aborted.
    """
    committed = aborted = 0
    for place in places:
        all_found = {name: Copies.of(folder / str(place)) for name, folder in nodes.items()}
        for name, found in all_found.items():
            if found.open:
                judge.violate(f"OPEN: {place} at {name} has open transactions of {sorted(found.open)}")
            given = dict(read.get(place, {}))
            for offset, value in given.items() - found.committed.items():
                was = "ABORTED AND READ" if found.aborted.get(offset) == value else "READ AND LOST"
                judge.violate(f"{was}: {value[:40]!r} was read at {place}:{offset}, not so at {name}")
            for offset, value in found.committed.items() - given.items():
                judge.violate(f"COMMITTED AND NOT READ: {value[:40]!r} is at {place}:{offset} at {name}")
        first, *others = all_found.values()
        if any(each != first for each in others):
            judge.violate(f"the replicas of {place} differ in what is committed, aborted or open")
        committed, aborted = committed + len(first.committed), aborted + len(first.aborted)
    return committed, aborted
