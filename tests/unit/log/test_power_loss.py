"""Power lost at any call: what was acknowledged as durable is there, and nothing that nobody appended.

One run: a log of small segments on a disk in memory; appends, flushes, truncations, and either deleted beginnings or
compactions, one after another, until the power goes at a call of chance's choosing, again and again. After each loss
the directory is opened as a node does it, and read.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import Files
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import measure
from barnabas.log.cleaning.offset_map import ENTRY_BYTES
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import decode_records, encode_batch

DELETED: Final = LogConfig(
    segment_bytes=1500, index_interval_bytes=200, retention_ms=-1, message_timestamp_after_max_ms=2**60
)
COMPACTED: Final = dataclasses.replace(
    DELETED, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)
TOPIC_ID: Final = uuid.UUID(int=7)
CHANGES: Final = {
    *(
        "open",
        "pwrite",
        "pwritev",
        "ftruncate",
        "fdatasync",
        "fsync",
        "syncfs",
        "rename",
        "unlink",
        "makedirs",
    )
}
Keyed = tuple[bytes, bytes]
"""A record's key and value."""

LOSSES: Final = 6
"""How often the power goes in one run."""


class PowerLostError(BaseException):
    """The process ends here: no handler of the code under test may see it as an error of the disk."""


class FailingPower:
    """A disk whose power goes before the change with the number `at`; whoever asks it for anything then ends."""

    def __init__(self, disk: MemoryFiles) -> None:
        self.disk = disk
        self.changes = 0
        self.at = -1

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.disk, name)

        def call(*arguments: Any) -> Any:
            if name in CHANGES:
                self.changes += 1
            if 0 <= self.at < self.changes and name != "close":
                raise PowerLostError
            return real(*arguments)

        return call


class Run:
    """What was appended, and what of it was acknowledged as durable."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = FailingPower(MemoryFiles())
        self.clock = ManualClock()
        self.environment = seeded_environment(seed, self.clock, files=cast(Files, self.files))
        self.is_compacted = bool(seed % 2)
        self.config = COMPACTED if self.is_compacted else DELETED
        self.appended: dict[int, Keyed] = {}
        """What may be read, by its offset."""
        self.replaced: dict[int, list[Keyed]] = {}
        """What a truncation took back: until something durable is there, it may be read again."""
        self.durable_end = 0
        self.committed = 0
        """The high watermark: no leader has less, and nothing from there on is compacted."""
        self.start = 0
        """Records before it may go."""
        self.number = 0
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open("/data/log", "c", 1, self.environment)
        found = self.directory.partitions_on_disk()
        assert not self.durable_end or found["t", 0] == TOPIC_ID
        self.log: PartitionLog = self.directory.open_partition("t", 0, TOPIC_ID, self.config)

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.number += 1
            value = b"%d-" % self.number + bytes(self.chance.choice((5, 100, 700)))
            key = b"%d" % self.chance.randrange(6)
            self.appended[self.log.log_end_offset] = key, value
            # The record's number is its time, by which it is looked up.
            self.log.append_as_leader(encode_batch([(self.number, key, value, ())]), 0)

    def flush(self) -> None:
        self.is_durable_to(self.log.flush())

    def flush_finished(self) -> None:
        self.is_durable_to(self.log.flush_finished())

    def is_durable_to(self, end: int) -> None:
        self.durable_end = max(self.durable_end, min(end, self.content_end()))
        self.replaced = {offset: former for offset, former in self.replaced.items() if offset >= end}

    def content_end(self) -> int:
        """Where a former loss has left a gap, a truncated log ends behind this, until it is opened again."""
        return max(self.appended, default=-1) + 1

    def checkpoint(self) -> None:
        self.directory.write_checkpoints({})

    def trim(self) -> None:
        self.start = self.chance.randint(self.start, self.log.log_end_offset)
        self.log.maybe_increment_log_start_offset(self.start)
        self.log.delete_old_segments(self.log.log_end_offset)

    def truncate(self) -> None:
        """As a follower whose leader has less."""
        end = max(self.start, self.committed, self.log.log_end_offset - self.chance.randint(0, 8))
        for offset in [each for each in self.appended if each >= end]:
            self.replaced.setdefault(offset, []).append(self.appended.pop(offset))
        self.durable_end = min(self.durable_end, self.content_end())
        assert self.log.truncate_to(end) == end, "every batch is of one record"

    def compact(self) -> None:
        self.committed = self.chance.randint(self.committed, self.log.log_end_offset)
        to_clean = measure(self.log, self.committed, self.clock.now_ms())
        if to_clean.cleanable_bytes:
            cleaner.clean(to_clean, self.clock.now_ms(), lambda _: None, buffer_bytes=20 * ENTRY_BYTES)
            self.directory.write_cleaner_checkpoint()

    def close(self) -> None:
        self.directory.close({})
        self.is_durable_to(self.log.log_end_offset)
        self.open()

    def steps(self) -> list[Callable[[], None]]:
        return (
            [self.append] * 6
            + [self.flush] * 2
            + [self.flush_finished, self.checkpoint, self.close, self.truncate]
            + [self.compact if self.is_compacted else self.trim]
        )

    def until_power_is_lost(self) -> None:
        self.files.at = self.files.changes + self.chance.randint(0, 150)
        try:
            while True:
                self.chance.choice(self.steps())()
        except PowerLostError:
            pass
        self.files.disk.lose_power(self.chance)
        self.files.at = -1

    def check(self) -> None:
        found = read(self.log)
        for offset, record in found.items():
            may_be = [self.appended.get(offset), *self.replaced.get(offset, ())]
            assert record in may_be, f"{record} at {offset}: nobody appended that"
        assert list(found) == sorted(found)
        missing = {
            offset for offset in self.appended if self.start <= offset < self.durable_end
        } - found.keys()
        if self.is_compacted:
            last = {key: offset for offset, (key, _) in found.items()}
            missing = {each for each in missing if last.get(self.appended[each][0], -1) < each}
        assert not missing, f"acknowledged as durable, and gone: {sorted(missing)}"
        assert self.log.log_start_offset <= self.start
        assert self.log.log_end_offset >= max(found, default=-1) + 1
        self.check_times(found)
        # What was lost is lost for good: its offsets may be given again, unless there are records behind it.
        self.appended, self.replaced = found, {}
        self.start = min(self.start, self.log.log_end_offset)
        self.committed = min(self.committed, self.log.log_end_offset)
        self.durable_end = min(self.durable_end, self.log.log_end_offset)

    def check_times(self, found: dict[int, Keyed]) -> None:
        """Indexes that a crash has spoiled would show here: a look-up finds what a walk through the log finds."""
        times = {offset: int(value.partition(b"-")[0]) for offset, (_, value) in found.items()}
        for time in [*times.values(), self.number + 1]:
            wanted = next((offset for offset, each in times.items() if each >= time), None)
            looked_up = self.log.offset_for_timestamp(time)
            assert (looked_up and looked_up.offset) == wanted, f"by time {time}"


def read(log: PartitionLog) -> dict[int, Keyed]:
    found: dict[int, Keyed] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1000)
        if not data:
            break
        for position, header in iterate_headers(data):
            for record in decode_records(data[position : position + header.size_in_bytes]):
                assert record.key is not None
                assert record.value is not None
                if record.offset >= log.log_start_offset:
                    found[record.offset] = record.key, record.value
            offset = header.next_offset
    return found


FORMER_FAULTS: Final = (105, 115, 125, 167, 305, 386, 453, 489, 1005, 1761, 1876, 2176, 2237, 2484, 3889)
"""Seeds that showed faults which the first ones do not."""


@pytest.mark.parametrize("seed", [*range(80), *FORMER_FAULTS])
def test_what_is_durable_outlives_the_power(seed: int) -> None:
    run = Run(seed)
    for _ in range(LOSSES):
        run.until_power_is_lost()
        run.open()
        run.check()
        run.append()
        assert read(run.log) == run.appended


@pytest.mark.parametrize("seed", range(20))
def test_power_that_goes_behind_a_truncation_leaves_no_hole(seed: int) -> None:
    """What was cut off may be there again, but never a later part of it behind an earlier one that is gone."""
    run = Run(0)
    while len(run.log.segments) < 4:
        run.append()
    run.close()
    end = run.log.log_end_offset
    assert run.log.truncate_to(1) == 1
    run.files.disk.lose_power(random.Random(seed))
    run.durable_end = 0
    run.open()
    found = list(read(run.log))
    assert found == list(range(len(found)))
    assert 1 <= run.log.log_end_offset == len(found) <= end


@pytest.mark.parametrize("seed", range(20))
def test_where_every_record_is_to_be_synced_power_that_goes_behind_a_roll_leaves_no_gap(seed: int) -> None:
    """Of what one producer has under way a later part may not be there while an earlier one is gone: sent again, that
    one would be out of order for ever.
    """
    run = Run(0)
    run.close()
    run.log.update_config(dataclasses.replace(DELETED, flush_messages=1))
    while len(run.log.segments) < 3:
        run.append()
    run.append()
    run.files.disk.lose_power(random.Random(seed))
    run.open()
    found = list(read(run.log))
    assert not run.log.recovery_report.gaps
    assert found == list(range(len(found)))


def test_so_does_a_log_that_is_to_be_synced_less_often_where_it_is_due() -> None:
    run = Run(0)
    run.close()
    run.log.update_config(dataclasses.replace(DELETED, flush_messages=1_000))
    while len(run.log.segments) < 3:
        run.append()
    segments = [f"/data/log/t-0/{base:020d}.log" for base in run.log.segment_base_offsets]
    assert not any(map(run.files.disk.is_durable, segments))
    run.log.update_config(dataclasses.replace(DELETED, flush_messages=run.log.unflushed_records + 1))
    while len(run.log.segments) < 4:
        run.append()
    assert all(map(run.files.disk.is_durable, segments))
    assert run.log.recovery_point == 0, "nothing is known of their indexes"
