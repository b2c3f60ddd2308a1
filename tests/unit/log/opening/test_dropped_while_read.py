"""What a reader began to read of a segment before it was cut, or dropped, says nothing of what comes after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery_harness import fill, open_log

from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.log.segments import segment as segment_module
from barnabas.log.segments import transaction_index
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch


class HeldReader:
    """A thread that has read a file, and goes on when it may."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._has_read, self._may_go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except OSError as error:
            self.error = error

    def held(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """`read`, after which it waits, once."""

        def reading(*arguments: Any) -> Any:
            found = read(*arguments)
            if threading.current_thread() is self._thread and not self._has_read.is_set():
                self._has_read.set()
                assert self._may_go.wait(20)
            return found

        return reading

    def begin(self) -> None:
        self._thread.start()
        assert self._has_read.wait(20)

    def go_on(self) -> None:
        self._may_go.set()
        self._thread.join(20)


def append_transaction(log: PartitionLog) -> None:
    batch = encode_batch(
        [(1_000, None, b"v" * 100, ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(batch, 0, guard=UNGUARDED)


def abort(log: PartitionLog) -> None:
    marker = encode_marker(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1_000
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)


def test_a_list_of_what_was_aborted_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abort that is written in place of one that was taken back would not be listed."""
    log = open_log(tmp_path)
    fill(log, 1)
    append_transaction(log)
    fill(log, 3)
    abort(log)
    fill(log, 5)
    end = log.log_end_offset
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=end)
    reader = HeldReader(lambda: log.aborted_transactions(0, 20))
    monkeypatch.setattr(transaction_index, "read_whole", reader.held(transaction_index.read_whole))
    reader.begin()
    cutting = threading.Thread(target=log.truncate_to, args=(3,))
    cutting.start()
    cutting.join(0.2)  # it may wait for the reader
    reader.go_on()
    cutting.join(20)
    assert (log.log_end_offset, log.aborted_transactions(0, 20)) == (3, [])
    abort(log)
    assert [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, 20)] == [(1, 3)]


def test_indexes_are_not_written_over_those_of_another_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are built anew while the segment is dropped; another has its name by the time that they are written."""
    log = open_log(tmp_path)
    fill(log, 12)
    end, index = log.log_end_offset, Path(log.segments[1].path(OffsetIndex.suffix))
    log.close()
    index.unlink()
    log = open_log(tmp_path, clean=True, recovery_point=end)
    dropped = log.segments[1]
    reader = HeldReader(dropped.open)
    monkeypatch.setattr(segment_module, "read_entries", reader.held(segment_module.read_entries))
    reader.begin()
    log.truncate_to(dropped.base_offset - 1)
    for count, size in ((1, 1), (3, 300)):
        log.append_as_leader(encode_batch([(1_000, None, b"v" * size, ())] * count), 0)
        log.roll()
    assert log.segments[1].base_offset == dropped.base_offset
    reader.go_on()
    assert index.read_bytes() == b"", "it has one batch"
    assert isinstance(reader.error, FileNotFoundError)
    fill(log, 1)
    end = log.log_end_offset
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=end)
    assert log.segments[1].find(dropped.base_offset + 2) is not None
