"""Recovery that is itself interrupted, or follows another: what was found once is neither lost nor sought again."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recovery_harness import CONFIG, FILES, TOPIC_ID, damaged_log, files, fill, offsets, open_log

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log import partition_log
from barnabas.log.log_directory import LogDirectory


class CrashError(BaseException):
    """The process ends here: no handler of the code under test may see it as an error of the disk."""


MUTATING = ("ftruncate", "rename", "unlink", "pwritev", "pwrite")


def crash_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Callable[[], int]:
    """Let `steps` changes of the disk through and end the process at the next; returns how many there were."""
    done = 0

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(SystemFiles, name)

        def call(*arguments: Any) -> Any:
            nonlocal done
            if done == steps:
                raise CrashError
            done += 1
            return real(*arguments)

        return call

    for name in MUTATING:
        monkeypatch.setattr(FILES, name, counted(name))
    return lambda: done


def test_recovery_that_crashes_at_any_step_is_taken_up(tmp_path: Path) -> None:
    damaged_log(tmp_path / "damaged")
    shutil.copytree(tmp_path / "damaged", tmp_path / "whole")
    whole = open_log(tmp_path / "whole")
    expected = (offsets(whole), whole.epochs.entries, whole.recovery_report.segments_set_aside)
    state = whole.producer_state.producers[5].last_sequence
    whole.close()
    kept = {name: data for name, data in files(whole.directory).items() if not name.endswith("index")}
    assert expected[0] == list(range(expected[0][-1] + 1))
    assert len(expected[2]) > 1
    for steps in range(1000):
        place = tmp_path / str(steps)
        shutil.copytree(tmp_path / "damaged", place)
        with pytest.MonkeyPatch.context() as patch:
            done = crash_after(patch, steps)
            try:
                open_log(place).release()
            except CrashError:
                crashed = True
            else:
                crashed = False
        again = open_log(place)
        assert offsets(again) == expected[0]
        assert again.epochs.entries == expected[1]
        assert again.producer_state.producers[5].last_sequence == state
        again.close()
        assert {
            name: data for name, data in files(again.directory).items() if not name.endswith("index")
        } == kept
        if not crashed:
            assert done() == steps
            break
    assert steps > 10


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    opened = LogDirectory.open(str(tmp_path / "dir"), "c", 1, seeded_environment(files=FILES))
    yield opened
    opened.abandon()


def crash(directory: LogDirectory) -> LogDirectory:
    """The process ends without a word, and another starts."""
    directory.abandon()
    return LogDirectory.open(directory.path, "c", 1, seeded_environment(files=FILES))


def test_what_was_checked_is_not_checked_again_after_another_crash(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    fill(log, 23)
    directory = crash(directory)
    directory.recovery_points.clear()
    monkeypatch.setattr(partition_log, "SYNC_RECOVERED_BYTES", 1)
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    assert log.recovery_report.segments_checked == len(log.segment_base_offsets) > 2
    assert log.recovery_point == 23
    directory = crash(directory)
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    assert log.recovery_report.segments_checked == 1
    assert log.recovery_report.snapshot_offset == log.segment_base_offsets[-1]
    assert offsets(log) == list(range(23))
    directory.abandon()


def test_a_sync_that_fails_after_the_check_leaves_the_log_unchecked(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    fill(log, 23)
    directory = crash(directory)
    directory.recovery_points.clear()
    monkeypatch.setattr(partition_log, "SYNC_RECOVERED_BYTES", 1)

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(FILES, "fdatasync", refuse)
        patch.setattr(FILES, "fsync", refuse)
        with pytest.raises(KafkaError) as caught:
            directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    assert caught.value.code is ErrorCode.kafka_storage_error
    directory = crash(directory)
    log = directory.open_partition("t", 0, TOPIC_ID, CONFIG)
    assert log.recovery_report.segments_checked == len(log.segment_base_offsets)
    directory.abandon()


def test_what_memory_may_hold_alone_is_read_from_the_disk_or_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    size = log.size
    log.release()
    written: list[int] = []
    forgotten: list[int] = []
    write, advise = SystemFiles.pwritev, SystemFiles.posix_fadvise

    def record_write(fd: int, parts: list[bytes], position: int) -> int:
        written.append(sum(map(len, parts)))
        return write(fd, parts, position)

    def record_advice(fd: int, start: int, length: int, advice: int) -> None:
        forgotten.extend([start] * (advice == os.POSIX_FADV_DONTNEED))
        advise(fd, start, length, advice)

    monkeypatch.setattr(FILES, "pwritev", record_write)
    monkeypatch.setattr(FILES, "posix_fadvise", record_advice)
    open_log(tmp_path).release()
    assert (written, forgotten) == ([size], [])
    monkeypatch.setattr("barnabas.log.segments.segment.REWRITTEN_BYTES_MAX", size - 1)
    again = open_log(tmp_path)
    assert (written, forgotten) == ([size], [0])
    assert offsets(again) == [0, 1, 2]
