"""What closing a log asks of the disk: nothing that the disk was asked for before, and everything else."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any, Final, cast

import pytest

from barnabas.kernel.environment import Environment, seeded_environment
from barnabas.kernel.files import Files
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.records.record import encode_batch

TOPIC_ID: Final = uuid.UUID(int=7)
CONFIG: Final = LogConfig(retention_ms=-1, message_timestamp_after_max_ms=2**60)
INDEXES: Final = 2
"""Of offsets and of times; there were no transactions."""
BATCH: Final = encode_batch([(1, b"k", b"v", ())])


class CountingFiles:
    """A disk in memory that counts what it is asked to make durable."""

    def __init__(self) -> None:
        self.syncs: Counter[str] = Counter()
        self._disk = MemoryFiles()

    def __getattr__(self, name: str) -> Any:
        if name in ("fsync", "fdatasync", "rename"):
            self.syncs[name] += 1
        return getattr(self._disk, name)


@pytest.fixture
def files() -> CountingFiles:
    return CountingFiles()


@pytest.fixture
def environment(files: CountingFiles) -> Environment:
    return seeded_environment(files=cast(Files, files))


def start(environment: Environment, leader_epoch: int) -> tuple[LogDirectory, PartitionLog]:
    """The directory opened as a node does it, which then leads the partition under a new epoch."""
    directory = LogDirectory.open("/data/log", "c", 1, environment)
    directory.partitions_on_disk()
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    log.assign_epoch_start(leader_epoch)
    return directory, log


def close(log: PartitionLog, files: CountingFiles) -> Counter[str]:
    """What closing the log asked for."""
    files.syncs.clear()
    log.close()
    return files.syncs


def test_what_was_flushed_is_not_synced_again(environment: Environment, files: CountingFiles) -> None:
    """But the indexes, which a crash has built anew and a clean stop has not."""
    _, log = start(environment, 0)
    log.append_as_leader(BATCH, 0)
    log.flush()
    assert close(log, files) == {"fsync": INDEXES}
    assert close(log, files) == {}


def test_what_was_recovered_and_flushed_is_not_synced_again(
    environment: Environment, files: CountingFiles
) -> None:
    directory, log = start(environment, 0)
    log.append_as_leader(BATCH, 0)
    directory.abandon()
    _, log = start(environment, 1)
    log.flush()
    assert close(log, files) == {"fsync": INDEXES}


def test_what_a_clean_stop_left_is_not_synced_again(environment: Environment, files: CountingFiles) -> None:
    directory, log = start(environment, 0)
    log.append_as_leader(BATCH, 0)
    directory.close()
    _, log = start(environment, 1)
    assert close(log, files) == {}


def test_an_epoch_that_wrote_nothing_is_not_written(environment: Environment, files: CountingFiles) -> None:
    """The names and whose log it is are synced once: what the process before has synced nobody knows."""
    directory, _ = start(environment, 0)
    directory.abandon()
    _, log = start(environment, 1)
    assert close(log, files) == {"fsync": 2}


def test_an_epoch_is_written_once_it_has_written(environment: Environment) -> None:
    directory, log = start(environment, 3)
    log.append_as_leader(BATCH, 3)
    log.assign_epoch_start(4)
    directory.close()
    directory, log = start(environment, -1)
    assert log.epochs.entries == ((3, 0),)
    log.assign_epoch_start(5)
    log.append_as_leader(BATCH, 5)
    directory.close()
    _, log = start(environment, -1)
    assert log.epochs.entries == ((3, 0), (5, 1))


def test_what_came_after_the_flush_is_synced(environment: Environment, files: CountingFiles) -> None:
    _, log = start(environment, 0)
    log.append_as_leader(BATCH, 0)
    log.flush()
    log.append_as_leader(BATCH, 0)
    assert close(log, files)["fdatasync"] == 1


def test_what_was_cut_off_after_the_flush_is_synced(environment: Environment, files: CountingFiles) -> None:
    _, log = start(environment, 0)
    for _ in range(2):
        log.append_as_leader(BATCH, 0)
    log.flush()
    files.syncs.clear()
    log.truncate_to(1)
    log.close()
    assert files.syncs["fdatasync"] >= 1
