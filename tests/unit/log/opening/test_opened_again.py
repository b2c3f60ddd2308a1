"""A log whose opening fails at any system call, and which the same process then opens again."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from disk_faults import FaultyFiles
from recovery_harness import CONFIG, TOPIC_ID, damaged_log, fill, offsets, open_log

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files, SystemFiles
from barnabas.log import partition_log
from barnabas.log.checkpoints.checkpoint_file import read_offsets, write_offsets
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog

POINTS = "recovery-point-offset-checkpoint"
FILES = SystemFiles()


def open_directory(path: Path, disk: FaultyFiles) -> LogDirectory:
    return LogDirectory.open(
        str(path), "c", 1, seeded_environment(1, ManualClock(1000), files=cast(Files, disk))
    )


def stopped_properly(path: Path) -> None:
    """A log of several segments that was closed in order."""
    directory = open_directory(path, FaultyFiles(FILES))
    fill(directory.open_partition("t", 0, TOPIC_ID, CONFIG), 17, producer_id=5)
    directory.close({("t", 0): 17})


def killed(path: Path) -> None:
    """A log that a crash left, of which a batch in the middle is bad, and an empty segment of a roll that failed."""
    open_directory(path, FaultyFiles(FILES)).abandon()
    damaged_log(path)


def lost_its_tail(path: Path) -> None:
    """A log that ends before its recovery point: the disk has lost what it had confirmed."""
    open_directory(path, FaultyFiles(FILES)).abandon()
    log = open_log(path)
    fill(log, 12, producer_id=5)
    log.release()
    write_offsets(FILES, str(path / POINTS), {("t", 0): 50})


def new(path: Path) -> None:
    """Nothing yet."""
    open_directory(path, FaultyFiles(FILES)).close()


def what_it_holds(log: PartitionLog) -> object:
    producers = {
        producer_id: (entry.last_sequence, entry.producer_epoch)
        for producer_id, entry in log.producer_state.producers.items()
    }
    return offsets(log), log.log_start_offset, log.epochs.entries, producers


def refusal_of(action: Callable[[], object]) -> KafkaError | None:
    try:
        action()
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("sync_bytes", [1, partition_log.SYNC_RECOVERED_BYTES])
@pytest.mark.parametrize("before", [stopped_properly, killed, lost_its_tail, new])
def test_a_log_opens_once_the_disk_lets_it(
    tmp_path: Path, before: Callable[[Path], None], sync_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "SYNC_RECOVERED_BYTES", sync_bytes)
    before(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "whole")
    whole = open_directory(tmp_path / "whole", FaultyFiles(FILES))
    expected = what_it_holds(whole.open_partition("t", 0, TOPIC_ID, CONFIG))
    whole.abandon()
    disk = FaultyFiles(FILES)
    refusals = 0
    for call in range(1, 1000):
        place = tmp_path / str(call)
        shutil.copytree(tmp_path / "before", place)
        directory = open_directory(place, disk)
        with disk.failing(call, errno.EMFILE):
            refusal = refusal_of(partial(directory.open_partition, "t", 0, TOPIC_ID, CONFIG))
        if refusal is not None:
            assert refusal.code is ErrorCode.kafka_storage_error
            assert isinstance(refusal.__cause__, OSError), "it says why"
            assert not len(directory.cache), "nothing holds the files of a log that is not there"
            refusals += 1
        log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
        assert what_it_holds(log) == expected, disk.refused
        points = read_offsets(FILES, str(place / POINTS))
        assert points.get(("t", 0), 0) <= log.log_end_offset, "it vouches for what is yet to come"
        fill(log, 1, epoch=2, producer_id=5)
        after = what_it_holds(log)
        directory.abandon()
        directory = open_directory(place, disk)
        assert what_it_holds(directory.open_partition("t", 0, TOPIC_ID, CONFIG)) == after, disk.refused
        directory.abandon()
        shutil.rmtree(place)
        if not disk.refused:
            break
    assert refusals > 5
