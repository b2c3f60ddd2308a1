"""Power lost at any call: what was acknowledged as durable is there, and nothing that nobody appended.

One run: a log of small segments on a disk in memory; appends, flushes, a truncation, retention, a compaction, one after
another, until the power goes at a call of chance's choosing, again and again. After each loss the directory is opened
as a node does it, and read.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import Files
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import decode_records, encode_batch

CONFIG: Final = LogConfig(
    segment_bytes=1500, index_interval_bytes=200, retention_ms=-1, message_timestamp_after_max_ms=2**60
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
        self.appended: dict[int, bytes] = {}
        """What may be read, by its offset."""
        self.durable_end = 0
        self.start = 0
        """Records before it may go."""
        self.number = 0
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open("/data/log", "c", 1, self.environment)
        found = self.directory.partitions_on_disk()
        assert not self.durable_end or found["t", 0] == TOPIC_ID
        self.log: PartitionLog = self.directory.open_partition("t", 0, TOPIC_ID, CONFIG)

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.number += 1
            value = b"%d-" % self.number + bytes(self.chance.choice((5, 100, 700)))
            self.appended[self.log.log_end_offset] = value
            self.log.append_as_leader(encode_batch([(self.number, b"k", value, ())]), 0)

    def flush(self) -> None:
        self.durable_end = self.log.flush()

    def flush_finished(self) -> None:
        self.durable_end = max(self.durable_end, self.log.flush_finished())

    def checkpoint(self) -> None:
        self.directory.write_checkpoints({})

    def trim(self) -> None:
        self.start = self.chance.randint(self.start, self.log.log_end_offset)
        self.log.maybe_increment_log_start_offset(self.start)
        self.log.delete_old_segments(self.log.log_end_offset)

    def close(self) -> None:
        self.directory.close({})
        self.durable_end = max(self.appended, default=-1) + 1
        self.open()

    def steps(self) -> list[Callable[[], None]]:
        return (
            [self.append] * 6
            + [self.flush] * 2
            + [self.flush_finished, self.checkpoint, self.trim, self.close]
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
        assert found.items() <= self.appended.items(), "something was read that nobody appended"
        assert list(found) == sorted(found)
        durable = {offset for offset in self.appended if self.start <= offset < self.durable_end}
        missing = durable - found.keys()
        assert not missing, f"acknowledged as durable, and gone: {sorted(missing)}"
        assert self.log.log_start_offset <= self.start
        assert self.log.log_end_offset >= max(found, default=-1) + 1
        # What was lost is lost for good: its offsets may be given again, unless there are records behind it.
        self.appended = found
        self.start = min(self.start, self.log.log_end_offset)


def read(log: PartitionLog) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1000)
        if not data:
            break
        for position, header in iterate_headers(data):
            for record in decode_records(data[position : position + header.size_in_bytes]):
                assert record.value is not None
                if record.offset >= log.log_start_offset:
                    found[record.offset] = record.value
            offset = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(80))
def test_what_is_durable_outlives_the_power(seed: int) -> None:
    run = Run(seed)
    for _ in range(LOSSES):
        run.until_power_is_lost()
        run.open()
        run.check()
        run.append()
        assert read(run.log) == run.appended
