"""Rolling, retention, flushing, full disks, leader epochs, settings."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError, WouldBlock
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.records.record import decode_records, encode_batch


class Harness:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.files = SystemFiles()
        self.environment = seeded_environment(1, self.clock, files=self.files)

    def open(self, *, clean: bool = False, recovery_point: int = 0, **settings: object) -> PartitionLog:
        return PartitionLog.open(
            str(self.path),
            "t",
            0,
            uuid.UUID(int=3),
            LogConfig(**settings),  # type: ignore[arg-type]
            self.environment,
            clean_shutdown=clean,
            recovery_point=recovery_point,
        )

    def append(self, log: PartitionLog, count: int = 1, size: int = 100, epoch: int = 0) -> None:
        for _ in range(count):
            log.append_as_leader(encode_batch([(self.clock.now_ms(), b"k", bytes(size), ())]), epoch)


def bases(log: PartitionLog) -> list[int]:
    return list(log.segment_base_offsets)


def epochs(log: PartitionLog) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_segments_roll_by_size_time_and_full_index(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000, segment_ms=5000)
    harness.append(log, 10)
    assert bases(log) == [0, 5]
    harness.clock.advance(5001)
    harness.append(log)
    assert bases(log) == [0, 5, 10]
    log.update_config(LogConfig(segment_index_bytes=24, index_interval_bytes=1))
    log.roll()
    log.roll()
    assert bases(log) == [0, 5, 10, 11]
    harness.append(log, 4)
    assert bases(log)[:5] == [0, 5, 10, 11, 13]


def test_an_append_larger_than_a_segment_is_refused(harness: Harness) -> None:
    log = harness.open(segment_bytes=200)
    with pytest.raises(KafkaError) as caught:
        harness.append(log, size=300)
    assert caught.value.code is ErrorCode.record_list_too_large


def test_retention_by_size(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000, retention_bytes=2500)
    harness.append(log, 25)
    size = log.size
    assert log.delete_old_segments(4) == 0
    assert log.delete_old_segments(25) == 2
    assert 2500 <= log.size < size
    assert log.log_start_offset == 10 == log.segment_base_offsets[0]
    assert epochs(log) == [(0, 10)]
    assert not list(Path(log.directory).glob("*.deleted"))
    with pytest.raises(KafkaError):
        log.read(9, 100)


def test_retention_by_time_rolls_an_expired_active_segment(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000, retention_ms=10_000)
    harness.append(log, 8)
    harness.clock.advance(10_000)
    assert log.delete_old_segments(8) == 0
    harness.clock.advance(1)
    assert log.delete_old_segments(7) == 1
    assert log.delete_old_segments(8) == 1
    assert bases(log) == [8]
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    assert log.delete_old_segments(8) == 0
    harness.append(log)
    assert log.log_end_offset == 9


def test_compacted_logs_keep_what_is_old(harness: Harness) -> None:
    log = harness.open(
        segment_bytes=1000, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"})
    )
    harness.append(log, 8)
    harness.clock.advance(100)
    assert log.delete_old_segments(8) == 0
    log.maybe_increment_log_start_offset(6)
    assert log.delete_old_segments(8) == 1


def test_the_log_start_offset_hides_records_at_once(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000, retention_ms=-1)
    harness.append(log, 12)
    assert log.maybe_increment_log_start_offset(7)
    assert not log.maybe_increment_log_start_offset(3)
    assert log.earliest() == (7, -1, 0)
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 7
    with pytest.raises(KafkaError) as caught:
        log.maybe_increment_log_start_offset(13)
    assert caught.value.code is ErrorCode.offset_out_of_range
    assert log.delete_old_segments(12) == 1
    assert log.log_start_offset == 7


def test_a_reader_finishes_while_its_segment_is_deleted(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 12)
    found = log.locate(0, 10_000)
    assert found is not None
    log.maybe_increment_log_start_offset(12)
    assert log.delete_old_segments(12) == 2
    assert next(decode_records(found.read())).offset == 0


def test_flush_moves_the_recovery_point(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 12)
    assert (log.recovery_point, log.unflushed_records) == (0, 12)
    assert log.flush() == log.recovery_point == 12
    assert log.unflushed_records == 0
    log.release()
    again = harness.open(segment_bytes=1000, recovery_point=12)
    assert again.recovery_report.segments_checked == 1
    assert again.log_end_offset == 12


def fail_with(code: int, short: int) -> Callable[..., int]:
    real = SystemFiles.pwritev

    def failing(fd: int, parts: list[bytes], position: int) -> int:
        if short:
            return real(fd, [b"".join(parts)[:short]], position)
        raise OSError(code, os.strerror(code))

    return failing


@pytest.mark.parametrize("short", [0, 30])
def test_a_full_disk_leaves_the_log_unharmed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    log = harness.open()
    harness.append(log, 3)
    size = log.size
    with monkeypatch.context() as patch:
        patch.setattr(harness.files, "pwritev", fail_with(errno.ENOSPC, short))
        patch.setattr(harness.files, "pwrite", lambda *_: 0)
        with pytest.raises(KafkaError) as caught:
            harness.append(log)
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert (log.log_end_offset, log.size) == (3, size)
    assert (Path(log.directory) / f"{0:020d}.log").stat().st_size == size
    harness.append(log)
    assert log.log_end_offset == 4


def test_a_roll_that_fails_leaves_the_old_segment_active(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 5)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(harness.files, "rename", refuse)
        with pytest.raises(KafkaError) as caught:
            harness.append(log)
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert bases(log) == [0]
    harness.append(log, 2)
    assert bases(log) == [0, 5]
    log.release()
    assert harness.open(segment_bytes=1000).log_end_offset == 7


def test_upkeep_in_a_thread_beside_appends_and_reads(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000, retention_bytes=3000, index_interval_bytes=100)
    done = threading.Event()
    failures: list[BaseException] = []

    def upkeep() -> None:
        try:
            while not done.is_set():
                log.flush()
                log.delete_old_segments(log.log_end_offset - 1)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=upkeep)
    thread.start()
    try:
        for _ in range(600):
            harness.append(log)
            last = log.log_end_offset - 1
            assert next(decode_records(log.read(last, 10))).offset == last
    finally:
        done.set()
        thread.join()
    assert failures == []
    assert (log.flush(), log.log_end_offset) == (600, 600)
    log.release()
    again = harness.open(segment_bytes=1000, recovery_point=600)
    assert again.log_end_offset == 600
    assert again.log_start_offset == log.log_start_offset


def test_a_short_write_is_continued(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = harness.open()
    with monkeypatch.context() as patch:
        patch.setattr(harness.files, "pwritev", fail_with(0, 30))
        harness.append(log, 2)
    log.release()
    assert harness.open().log_end_offset == 2


def test_a_closed_log_takes_nothing(harness: Harness) -> None:
    log = harness.open()
    log.close()
    with pytest.raises(KafkaError) as caught:
        harness.append(log)
    assert caught.value.code is ErrorCode.kafka_storage_error


def test_leader_epochs(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 3, epoch=1)
    harness.append(log, 4, epoch=4)
    log.assign_epoch_start(6)
    assert epochs(log) == [(1, 0), (4, 3), (6, 7)]
    asked = {epoch: log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 2, 4, 5, 6, 7)}
    assert asked == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 3),
        2: (1, 3),
        4: (4, 7),
        5: (4, 7),
        6: (6, 7),
        7: (-1, -1),
    }
    with pytest.raises(KafkaError) as caught:
        harness.append(log, epoch=5)
    assert caught.value.code is ErrorCode.fenced_leader_epoch
    log.truncate_to(2)
    assert epochs(log) == [(1, 0)]
    log.release()


def test_epochs_lost_with_the_checkpoint_come_back_from_the_batches(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 3, epoch=1)
    harness.append(log, 4, epoch=4)
    log.flush()
    log.release()
    Path(log.epochs.path).unlink()
    assert epochs(harness.open(segment_bytes=1000)) == [(1, 0), (4, 3)]


def test_truncating_below_the_first_segment_starts_anew(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 12)
    log.maybe_increment_log_start_offset(12)
    log.delete_old_segments(12)
    assert log.truncate_to(4) == 4
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (4, 4, [4])
    log.truncate_fully_and_start_at(50)
    harness.append(log)
    assert log.read(50, 1000)
    log.release()
    assert harness.open(segment_bytes=1000).log_end_offset == 51


def test_log_append_time(harness: Harness) -> None:
    log = harness.open(message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(encode_batch([(5, None, b"v", ())]), 0)
    assert info.log_append_time_ms == harness.clock.now_ms()
    assert next(decode_records(log.read(0, 100))).timestamp == harness.clock.now_ms()


def test_memory_views_are_taken_as_they_come(harness: Harness) -> None:
    log = harness.open(cleanup_policy=frozenset({"compact"}))
    message = memoryview(b"frame" + encode_batch([(harness.clock.now_ms(), b"k", b"v", ())], compression=2))
    assert log.append_as_leader(message[5:], 0).base_offset == 0
    follower = PartitionLog.open(
        str(harness.path / "f"), "t", 0, uuid.UUID(int=3), LogConfig(), harness.environment
    )
    assert follower.append_as_follower(memoryview(log.read(0, 1000))) == (0, 0, -1, 0, False)


def test_a_coordinator_may_append_several_batches(harness: Harness) -> None:
    log = harness.open()
    one = encode_batch([(1, b"k", b"v", ())] * 3)
    info = log.append_as_leader(one + one, 0, origin=AppendOrigin.COORDINATOR)
    assert (info.base_offset, info.last_offset, log.log_end_offset) == (0, 5, 6)


def test_another_topic_id_is_one_clear_error(harness: Harness) -> None:
    log = harness.open()
    harness.append(log)
    log.close()
    before = {path: path.read_bytes() for path in Path(log.directory).iterdir()}
    with pytest.raises(LogStoreError, match="belongs to topic id"):
        PartitionLog.open(str(harness.path), "t", 0, uuid.UUID(int=4), LogConfig(), harness.environment)
    (Path(log.directory) / "partition.metadata").write_text("nonsense")
    with pytest.raises(LogStoreError, match=r"partition\.metadata cannot be read"):
        harness.open()
    (Path(log.directory) / "partition.metadata").write_bytes(
        before[Path(log.directory) / "partition.metadata"]
    )
    assert {path: path.read_bytes() for path in Path(log.directory).iterdir()} == before


def test_interrupted_removals_and_swaps_are_finished(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 12)
    log.close()
    directory = Path(log.directory)
    (directory / "00000000000000000099.log.deleted").write_bytes(b"x")
    (directory / "00000000000000000000.log.cleaned").write_bytes(b"x")
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 5))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    again = harness.open(segment_bytes=1000, clean=True, recovery_point=log.recovery_checkpoint)
    assert bases(again) == [0, 10]
    found = again.locate(9, 10)
    assert found is not None
    assert next(decode_records(found.read())).offset == 9
    assert sorted(path.suffix for path in directory.glob("*.[sdc]*[pwd]")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", 0),
        ("segment_bytes", 2**31),
        ("segment_ms", 0),
        ("index_interval_bytes", -1),
        ("cleanup_policy", frozenset({"burn"})),
        ("message_timestamp_type", "now"),
    ],
)
def test_settings_with_which_no_log_can_work_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name.replace("_", ".")):
        LogConfig(**{name: value})  # type: ignore[arg-type]


def test_nowait_reads_warm_data_and_refuses_closed_segments(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    harness.append(log, 12)
    log.close()
    again = harness.open(segment_bytes=1000, clean=True, recovery_point=log.recovery_checkpoint)
    with pytest.raises(BlockingIOError):
        again.locate(0, 100, nowait=True)
    again.read(0, 100)
    try:
        found = again.locate(0, 100, nowait=True)
        assert found is not None
        assert found.read(nowait=True) == found.read()
    except BlockingIOError:
        # A file system that cannot read without waiting says so; the caller then uses a thread.
        assert again.read(0, 100)


def test_an_append_that_may_not_block_asks_for_a_thread_before_any_change(harness: Harness) -> None:
    log = harness.open(segment_bytes=1000)
    batch = encode_batch([(harness.clock.now_ms(), b"k", bytes(100), ())])
    harness.append(log)
    while log.size + len(batch) <= 1000:
        log.append_as_leader(batch, 0, may_block=False)
    end, files = log.log_end_offset, sorted(os.listdir(log.directory))
    with pytest.raises(WouldBlock):
        log.append_as_leader(batch, 0, may_block=False)
    assert (log.log_end_offset, sorted(os.listdir(log.directory))) == (end, files)
    log.append_as_leader(batch, 0)
    assert bases(log) == [0, end]


def test_an_append_that_may_not_block_leaves_a_long_check_to_a_thread(harness: Harness) -> None:
    log = harness.open(cleanup_policy=frozenset({"compact"}))
    now_ms = harness.clock.now_ms()
    long = encode_batch([(now_ms, b"k", None, ())] * 5_000, compression=4)

    class Time:
        def begin(self) -> bool:
            return True

        def end(self) -> None:
            pass

    time = Time()
    assert log.needs_walk(long)
    with pytest.raises(WouldBlock):
        log.append_as_leader(long, 0, may_block=False, time=time)
    checked = log.check(long)
    assert (log.size, log.log_end_offset) == (0, 0)
    assert log.append_checked(checked, 0, may_block=False).last_offset == 4_999
    short = encode_batch([(now_ms, b"k", None, ())] * 100, compression=4)
    assert log.append_as_leader(short, 0, may_block=False, time=time).base_offset == 5_000


def test_an_append_that_may_not_block_does_not_wait_for_a_thread(harness: Harness) -> None:
    log = harness.open()
    harness.append(log)
    batch = encode_batch([(harness.clock.now_ms(), b"k", bytes(100), ())])
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with log._locks.log_end:
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(10)
        with pytest.raises(WouldBlock):
            log.append_as_leader(batch, 0, may_block=False)
    finally:
        done.set()
        thread.join()
    assert log.append_as_leader(batch, 0, may_block=False).base_offset == 1
