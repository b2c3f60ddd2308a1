"""What stands in the nodes' files in the end, read with nothing but the format, held against what clients were told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from history import History, Judge, Place
from log_checks import Log, check_agreement, check_log

from barnabas.records.batch import crc_is_valid, iterate_headers
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
        check_agreement(judge, place, logs, max(map(len, logs.values())))
        count += max(map(len, logs.values()))
    return count
