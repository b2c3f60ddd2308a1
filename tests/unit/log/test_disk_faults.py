"""Every system call of every change to a log refused in turn; what was acknowledged is there, and nothing else.

One case: a log with several segments, an open transaction and two epochs; an operation, one of whose system calls
fails; appends; a proper end or a crash; then the log is opened again and read. It must hold what was acknowledged,
less what was dropped on demand, in order and whole, however the operation ended.
"""

from __future__ import annotations

import errno
import itertools
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from disk_faults import SYNCS, FaultyFiles

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files, SystemFiles
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import measure
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.records.batch import iterate_headers
from barnabas.records.control import encode_marker
from barnabas.records.record import decode_records, encode_batch

CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    retention_ms=-1,
    cleanup_policy=frozenset({"compact", "delete"}),
    min_cleanable_dirty_ratio=0.0,
    message_timestamp_after_max_ms=2**60,
)
BASE = 15
"""Records before the operation, in three segments; keys repeat every four."""


class Case:
    """A log directory with one log, and what of it was acknowledged."""

    def __init__(self, path: Path, files: FaultyFiles) -> None:
        self.path = path
        self.clock = ManualClock()
        self.environment = seeded_environment(1, self.clock, files=cast(Files, files))
        self.acknowledged: dict[int, bytes] = {}
        self.epoch = 1
        self.may_be_gone: set[int] = set()
        """Offsets that the operation was to drop: all of them, some, or, if it failed, none."""
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(str(self.path), "c", 1, self.environment)
        self.log: PartitionLog = self.directory.open_partition("t", 0, uuid.UUID(int=7), CONFIG)

    def append(self, size: int = 20, **options: object) -> None:
        number = self.log.log_end_offset
        value = b"%d-" % number + bytes(size)
        records = [(self.clock.now_ms(), b"k%d" % (number % 4), value, ())]
        batch = encode_batch(records, **options)  # type: ignore[arg-type]
        info = self.log.append_as_leader(batch, self.epoch, guard=UNGUARDED)
        self.acknowledged[info.base_offset] = value
        self.may_be_gone.discard(info.base_offset)

    def append_marker(self, *, committed: bool) -> None:
        marker = encode_marker(
            committed=committed,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        self.log.append_as_leader(marker, self.epoch, origin=AppendOrigin.COORDINATOR)

    def fill(self) -> None:
        for number in range(BASE):
            if number == 7:
                self.log.assign_epoch_start(1)
            self.append()
        self.append(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        self.directory.write_checkpoints()

    def read(self) -> dict[int, bytes]:
        """All data records, in steps of about one batch; offsets must rise."""
        found: dict[int, bytes] = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 150)
            if not data:
                break
            for position, header in iterate_headers(data):
                assert header.last_offset >= offset, "offsets go back"
                offset = header.next_offset
                if not header.is_control:
                    for record in decode_records(data[position : position + header.size_in_bytes]):
                        assert record.value is not None
                        found[record.offset] = record.value
        return found

    def check(self) -> dict[int, bytes]:
        found = self.read()
        assert found.items() <= self.acknowledged.items(), "something was read that nobody was promised"
        missing = self.acknowledged.keys() - found.keys() - self.may_be_gone
        assert not missing, f"acknowledged, and gone: {sorted(missing)}"
        return found

    def reopen(self, *, cleanly: bool, expected: bool = True) -> None:
        """End properly, if that is `expected` to work, or as a crash would; then open again."""
        if cleanly:
            assert is_refused(lambda: self.directory.close({})) == (not expected)
        else:
            self.directory.abandon()
        self.open()
        assert self.directory.was_clean == (cleanly and expected)


def append_one(case: Case) -> None:
    case.append()


def append_and_roll(case: Case) -> None:
    for _ in range(6):
        case.append()


def append_many_batches(case: Case) -> None:
    first = case.log.log_end_offset
    value = b"many"
    one = encode_batch([(case.clock.now_ms(), b"k", value, ())])
    case.log.update_config(LogConfig())
    case.log.append_as_leader(one * 1500, 1, origin=AppendOrigin.COORDINATOR)
    case.acknowledged.update(dict.fromkeys(range(first, first + 1500), value))


def abort(case: Case) -> None:
    case.append_marker(committed=False)


def roll(case: Case) -> None:
    case.log.roll()


def flush(case: Case) -> None:
    case.log.flush()


def flush_finished(case: Case) -> None:
    case.log.flush_finished()


def checkpoint(case: Case) -> None:
    case.log.flush()
    case.directory.write_checkpoints({("t", 0): 3})


def begin_epoch(case: Case) -> None:
    case.epoch = 2
    case.log.assign_epoch_start(2)
    case.append()
    case.log.flush()


def retention(case: Case) -> None:
    case.log.maybe_increment_log_start_offset(8)
    case.may_be_gone.update(range(8))
    case.log.delete_old_segments(case.log.log_end_offset)


def expire_all(case: Case) -> None:
    case.log.update_config(LogConfig(segment_bytes=600, retention_ms=10))
    case.clock.advance(10_000)
    case.may_be_gone.update(case.acknowledged)
    case.log.delete_old_segments(case.log.log_end_offset)


def truncate(case: Case) -> None:
    case.may_be_gone.update(range(6, case.log.log_end_offset))
    case.log.truncate_to(6)
    case.acknowledged = {offset: value for offset, value in case.acknowledged.items() if offset < 6}
    case.directory.write_checkpoints()


def truncate_fully(case: Case) -> None:
    case.may_be_gone.update(case.acknowledged)
    case.log.truncate_fully_and_start_at(40)
    case.acknowledged = {}
    case.directory.write_checkpoints()


def compact(case: Case) -> None:
    last = {number % 4: number for number in range(BASE)}
    case.may_be_gone.update(set(range(BASE)) - set(last.values()))
    to_clean = measure(case.log, case.log.log_end_offset, case.clock.now_ms())
    cleaner.clean(to_clean, case.clock.now_ms(), lambda _: None)


def close(case: Case) -> None:
    case.directory.close({})


OPERATIONS: list[Callable[[Case], None]] = [
    append_one,
    append_and_roll,
    append_many_batches,
    abort,
    roll,
    flush,
    flush_finished,
    checkpoint,
    begin_epoch,
    retention,
    expire_all,
    truncate,
    truncate_fully,
    compact,
    close,
]


def is_refused(action: Callable[[], object]) -> bool:
    """Whether the disk refused; any other error is one of ours."""
    try:
        action()
    except KafkaError as error:
        if error.code is not ErrorCode.kafka_storage_error:
            raise
        return True
    return False


def run_case(path: Path, disk: FaultyFiles, operation: Callable[[Case], None], call: int, code: int) -> str:
    """Returns which system call was refused; empty when the operation has fewer."""
    case = Case(path, disk)
    case.fill()
    with disk.failing(call, code):
        refused = is_refused(lambda: operation(case))
    is_trusted = case.log.is_trusted
    if disk.refused in SYNCS and operation in (flush, flush_finished):
        assert not is_trusted, "a failed sync is final"
    if operation is not close:
        if is_trusted:
            case.check()
        for size in (5, 60, 20, 20, 20, 20, 20):
            assert is_refused(lambda size=size: case.append(size)) == (not is_trusted)
        if operation is compact:
            # A swap that stopped half way must not be met by a removal.
            assert is_refused(lambda: retention(case)) == (not is_trusted)
        if is_trusted:
            case.check()
        case.reopen(cleanly=call % 2 == 0, expected=is_trusted)
    else:
        case.directory.abandon()
        case.open()
        assert case.directory.was_clean == (not refused)
    case.acknowledged = case.check()
    assert not [path for path in Path(case.log.directory).iterdir() if path.suffix not in KNOWN_SUFFIXES]
    case.append()
    case.reopen(cleanly=False)
    case.check()
    assert case.log.log_end_offset == max(case.acknowledged) + 1
    case.directory.abandon()
    return disk.refused


OTHER_CODES = {
    "open": (errno.ENOSPC, errno.EMFILE),
    **dict.fromkeys(("pwritev", "pwrite", "fsync", "fdatasync", "rename"), (errno.ENOSPC,)),
}
"""What the system answers besides EIO: where it needs room, or a descriptor."""

KNOWN_SUFFIXES = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ""})


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_any_system_call_may_fail(tmp_path: Path, operation: Callable[[Case], None]) -> None:
    disk = FaultyFiles(SystemFiles())
    call = 1
    while name := run_case(tmp_path / f"{call}", disk, operation, call, errno.EIO):
        for code in OTHER_CODES.get(name, ()):
            assert run_case(tmp_path / f"{call}-{code}", disk, operation, call, code) == name
        call += 1
    assert call > 1, "the operation does nothing on disk"


@pytest.mark.parametrize("is_low", [False, True], ids=["checkpoints-to-lower", "checkpoints-are-low"])
@pytest.mark.parametrize("operation", [truncate, truncate_fully], ids=lambda operation: operation.__name__)
def test_a_full_disk_leaves_a_log_that_goes_on_when_there_is_room(
    tmp_path: Path, operation: Callable[[Case], None], *, is_low: bool
) -> None:
    """Also one that is to begin anew: it keeps what it has until it has the files to begin with."""
    disk = FaultyFiles(SystemFiles())
    case = Case(tmp_path, disk)
    case.fill()
    if is_low:
        case.log.truncator.write_lowered = lambda _: None
    with disk.without_room():
        is_refused(lambda: operation(case))
    assert case.log.is_trusted
    case.check()
    operation(case)
    case.append()
    case.reopen(cleanly=False)
    assert case.check() == case.acknowledged
    case.directory.abandon()


def test_what_a_former_try_has_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    """A log that could not begin anew, at whatever step, does so without being opened again before."""
    disk = FaultyFiles(SystemFiles())
    tries = 0
    for call in itertools.count(1):
        case = Case(tmp_path / f"{call}", disk)
        case.fill()
        with disk.failing(call, errno.ENOSPC):
            is_refused(partial(truncate_fully, case))
        if not disk.refused or not case.log.is_trusted:
            break
        truncate_fully(case)
        case.append()
        case.reopen(cleanly=False)
        assert case.check() == case.acknowledged
        case.directory.abandon()
        tries += 1
    case.directory.abandon()
    assert tries >= 4, "its files are four"
