"""What the log relies on after a disk failed it, and what readers see while others change the log."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.config import LogConfig
from barnabas.log.errors import WouldBlock
from barnabas.log.log_directory import LogDirectory
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.segments.segment import Segment
from barnabas.records.batch import BatchHeader, parse_header
from barnabas.records.control import EndTransactionMarker
from barnabas.records.record import decode_records, encode_batch

FILES = SystemFiles()
SMALL = LogConfig(segment_bytes=1000)
BATCH = encode_batch([(1, b"k", b"x" * 100, ())])


def open_log(path: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        str(path),
        "t",
        0,
        uuid.UUID(int=3),
        SMALL,
        seeded_environment(files=FILES),
        clean_shutdown=clean,
        recovery_point=recovery_point,
    )


def append(log: PartitionLog, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(BATCH, epoch)


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    while log.log_start_offset + len(found) < log.log_end_offset:
        data = log.read(log.log_start_offset + len(found), 150)
        found += [record.offset for record in decode_records(data)]
    return found


def test_a_failed_sync_is_not_asked_again_but_checked_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = LogDirectory.open(str(tmp_path), "c", 1, seeded_environment(files=FILES))
    log = directory.open_partition("t", 0, uuid.UUID(int=3), LogConfig())
    other = directory.open_partition("other", 0, uuid.UUID(int=4), LogConfig())
    append(log, 3)
    log.flush()
    append(log, 2)
    append(other, 4)

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(FILES, "fdatasync", refuse)
        with pytest.raises(KafkaError):
            log.flush()
    # Linux reports a failed write-back once: the next sync would succeed, and prove nothing.
    for action in (log.flush, log.flush_finished, lambda: append(log, 1), log.close, log.close):
        with pytest.raises(KafkaError) as caught:
            action()
        assert caught.value.code is ErrorCode.kafka_storage_error
    assert log.recovery_point == 3
    with pytest.raises(KafkaError):
        directory.close({})
    # What the disk really holds of the page that was not written.
    path = tmp_path / "t-0" / f"{0:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content[: 3 * len(BATCH) + 100] + bytes(len(content) - 3 * len(BATCH) - 100))
    again = LogDirectory.open(str(tmp_path), "c", 1, seeded_environment(files=FILES))
    assert not again.was_clean
    assert again.recovery_points == {("t", 0): 2, ("other", 0): 4}, "not the last, for the indexes"
    checked = again.open_partition("t", 0, uuid.UUID(int=3), LogConfig())
    assert (checked.log_end_offset, checked.is_trusted) == (3, True)
    assert again.open_partition("other", 0, uuid.UUID(int=4), LogConfig()).log_end_offset == 4
    again.close({})


def test_a_log_that_was_closed_badly_may_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = LogDirectory.open(str(tmp_path), "c", 1, seeded_environment(files=FILES))
    log = directory.open_partition("t", 0, uuid.UUID(int=3), LogConfig())
    append(log, 3)

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(FILES, "fdatasync", refuse)
        with pytest.raises(KafkaError):
            directory.close_partition("t", 0)
    again = directory.open_partition("t", 0, uuid.UUID(int=3), LogConfig())
    assert again is not log
    assert (again.recovery_report.segments_checked, again.log_end_offset) == (1, 3)
    directory.close({})


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("orphan", [3, 8, 11])
def test_an_empty_segment_below_the_end_of_the_one_before_is_dropped(
    tmp_path: Path, orphan: int, clean: bool
) -> None:
    log = open_log(tmp_path)
    append(log, 12)
    assert log.segment_base_offsets == (0, 5, 10)
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        (tmp_path / "t-0" / f"{orphan:020d}{suffix}").touch()
    again = open_log(tmp_path, clean=clean, recovery_point=log.recovery_checkpoint if clean else 0)
    assert again.segment_base_offsets == (0, 5, 10)
    assert again.recovery_report.orphans_removed == (orphan,)
    assert offsets(again) == list(range(12))
    append(again, 1)
    assert again.log_end_offset == 13


def test_a_finished_segment_is_flushed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, 5)
    assert not log.is_finished_segment_unflushed
    append(log, 7)
    assert log.is_finished_segment_unflushed
    active = log.segments[-1].path(".log")
    synced: list[str] = []
    monkeypatch.setattr(FILES, "fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    assert log.flush_finished() == log.recovery_point == 10
    assert len(synced) == 2
    assert active not in synced
    assert not log.is_finished_segment_unflushed
    log.release()
    again = open_log(tmp_path, recovery_point=10)
    assert (again.recovery_report.segments_checked, again.log_end_offset) == (1, 12)
    assert again.recovery_report.snapshot_offset in (-1, 10)


@pytest.mark.parametrize("fails", [False, True])
def test_a_roll_waits_for_the_sync_that_flush_messages_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """It is under way in another thread, and the disk may have less than the next segment's beginning till then."""
    log = open_log(tmp_path)
    log.update_config(LogConfig(segment_bytes=1000, flush_messages=1))
    append(log, 3)
    is_syncing, may_end, real = threading.Event(), threading.Event(), os.fdatasync

    def sync(fd: int) -> None:
        if is_syncing.is_set():
            return real(fd)
        is_syncing.set()
        assert may_end.wait(10)
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd)

    monkeypatch.setattr(FILES, "fdatasync", sync)
    with ThreadPoolExecutor() as threads:
        flushing = threads.submit(log.flush)
        assert is_syncing.wait(10)
        rolling = threads.submit(log.roll)
        with pytest.raises(TimeoutError):
            rolling.result(0.05)
        assert len(log.segments) == 1
        may_end.set()
        if fails:
            with pytest.raises(KafkaError, match="Input/output error"):
                flushing.result()
            with pytest.raises(KafkaError, match="Input/output error"):
                rolling.result()
        else:
            assert flushing.result() == 3
            rolling.result()
    assert len(log.segments) == (1 if fails else 2)


@pytest.mark.parametrize("flush", [PartitionLog.flush, PartitionLog.flush_finished])
def test_a_flush_beside_a_roll_whose_sync_fails_vouches_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Callable[[PartitionLog], int]
) -> None:
    """The system reports the failure once, to the roll; the flush waits for that sync, and then begins its own."""
    log = open_log(tmp_path)
    append(log, 12)
    log.update_config(LogConfig(segment_bytes=1000, flush_messages=1))
    is_syncing, may_end = threading.Event(), threading.Event()

    def sync(_: int) -> None:
        if not is_syncing.is_set():
            is_syncing.set()
            assert may_end.wait(10)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FILES, "fdatasync", sync)
    with ThreadPoolExecutor() as threads:
        rolling = threads.submit(log.roll)
        assert is_syncing.wait(10)
        flushing = threads.submit(flush, log)
        with pytest.raises(TimeoutError):
            flushing.result(0.05)
        may_end.set()
        for each in (rolling, flushing):
            with pytest.raises(KafkaError, match="Input/output error"):
                each.result()
    assert (log.is_trusted, log.recovery_point, log.recovery_checkpoint) == (False, 0, 0)


def test_a_flush_beside_a_truncation_vouches_for_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    append(log, 3)
    end = log._state.end
    monkeypatch.setattr(FILES, "fdatasync", lambda _: None)
    log.truncate_to(1)
    append(log, 4)
    assert log._flusher.flush_to(end[0], log.segments, end[1], end[3]) == 0


def test_a_slice_found_before_a_truncation_reads_as_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 4)
    found = log.locate(0, 10_000)
    assert found is not None
    log.truncate_to(1)
    other = encode_batch([(1, b"k", bytes(37), ())])
    for _ in range(5):
        log.append_as_leader(other, 1)
    assert found.read() == b""
    assert offsets(log) == list(range(6))


def test_an_older_epoch_drops_nothing(tmp_path: Path) -> None:
    cache = LeaderEpochCache(FILES, str(tmp_path))
    cache.assign(1, 0)
    cache.assign(5, 100)
    for epoch, start in ((3, 50), (3, 100), (3, 200), (-1, 0), (5, 120)):
        cache.assign(epoch, start)
        assert cache.entries == ((1, 0), (5, 100))
    cache.assign(6, 100)
    assert cache.entries == ((1, 0), (6, 100))
    cache.flush(101)
    assert LeaderEpochCache(FILES, str(tmp_path)).entries == ((1, 0), (6, 100))


def test_epochs_of_an_old_checkpoint_yield_to_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 3, epoch=4)
    append(log, 3, epoch=6)
    log.flush()
    log.truncate_to(3)
    follower_of = encode_batch([(1, b"k", bytes(100), ())], base_offset=3, partition_leader_epoch=5)
    log.append_as_follower(follower_of)
    append(log, 1, epoch=7)
    assert log.epochs.entries == ((4, 0), (5, 3), (7, 4))
    log.release()
    assert open_log(tmp_path).epochs.entries == ((4, 0), (5, 3), (7, 4))


def test_a_follower_takes_no_records_of_an_epoch_that_is_over(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 3, epoch=4)
    log.assign_epoch_start(5)
    # Nothing was written under 5: the leader of 6 may still have records of 4 here.
    log.append_as_follower(encode_batch([(1, None, b"v", ())], base_offset=3, partition_leader_epoch=4))
    assert log.epochs.entries == ((4, 0),)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(encode_batch([(1, None, b"v", ())], base_offset=4, partition_leader_epoch=3))
    assert caught.value.code is ErrorCode.fenced_leader_epoch


def test_an_epoch_that_begins_beside_an_append_begins_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    append(log, 2, epoch=1)
    inside, done = threading.Event(), threading.Event()
    real = SystemFiles.pwritev

    def slow_write(fd: int, parts: list[bytes], position: int) -> int:
        inside.set()
        assert done.wait(20)
        return real(fd, parts, position)

    monkeypatch.setattr(FILES, "pwritev", slow_write)
    thread = threading.Thread(target=append, args=(log, 1, 1))
    thread.start()
    try:
        assert inside.wait(20)
        log.assign_epoch_start(2)
        assert log.epochs.latest_epoch == 1
        with pytest.raises(WouldBlock):
            log.append_as_leader(BATCH, 1, may_block=False)
    finally:
        done.set()
        thread.join()
    assert log.epochs.entries == ((1, 0), (2, 3))
    with pytest.raises(KafkaError):
        append(log, 1, epoch=1)


def test_many_batches_that_fail_half_way_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog.open(
        str(tmp_path), "t", 0, uuid.UUID(int=3), LogConfig(), seeded_environment(files=FILES)
    )
    append(log, 1)
    size, real, calls = log.size, SystemFiles.pwritev, []

    def second_fails(fd: int, parts: list[bytes], position: int) -> int:
        calls.append(position)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, parts, position)

    def cannot_cut(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(FILES, "pwritev", second_fails)
        patch.setattr(FILES, "ftruncate", cannot_cut)
        with pytest.raises(KafkaError):
            log.append_as_leader(BATCH * 1500, 0, origin=AppendOrigin.COORDINATOR)
    path = Path(log.segments[-1].path(".log"))
    assert path.stat().st_size > size == log.size
    assert log.log_end_offset == 1
    # What was left has to go first, which is nothing for an event loop.
    with pytest.raises(WouldBlock):
        log.append_as_leader(BATCH, 0, may_block=False)
    append(log, 1)
    assert path.stat().st_size == log.size == 2 * len(BATCH)
    log.release()
    assert open_log(tmp_path).log_end_offset == 2


def header(producer_id: int) -> BatchHeader:
    return parse_header(
        encode_batch(
            [(1, None, b"v", ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def test_the_first_undecided_offset_is_that_of_all_that_overlap() -> None:
    state = ProducerState()
    marker = EndTransactionMarker(committed=True, coordinator_epoch=0, timestamp=1)
    for offset, producer_id in enumerate((1, 2, 3)):
        state.replay(header(producer_id), offset, 1)
    assert state.first_unstable_offset() == 0
    ended = state.replay_marker(header(2), marker, 3)
    assert ended is not None
    assert ended.last_stable_offset == 0
    state.replay_marker(header(1), marker, 4)
    state.replay_marker(header(3), marker, 5)
    found = []
    for high_watermark in (3, 4, 5, 6):
        state.on_high_watermark(high_watermark)
        found.append(state.first_unstable_offset())
    # Producer 1 began first and its marker is at 4; then 3, which began at 2.
    assert found == [0, 0, 2, None]


def test_a_roll_does_not_mind_that_retention_takes_a_segment_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What flush.messages asks for is synced first; of what is deleted meanwhile nothing is asked."""
    log = open_log(tmp_path)
    append(log, 25)
    log.update_config(LogConfig(segment_bytes=1000, flush_messages=1, retention_ms=-1))
    first = log.segment_base_offsets[0]
    log.maybe_increment_log_start_offset(log.segment_base_offsets[-1])
    for segment in log._state.segments[:-1]:
        log._state.factory.cache.forget(segment)
        segment.release()
    real = Segment.sync_data
    deleted = []

    def sync_data(segment: Segment) -> None:
        if not deleted:
            with ThreadPoolExecutor() as threads:
                deleted.append(threads.submit(log.delete_old_segments, log.log_end_offset).result())
        real(segment)

    monkeypatch.setattr(Segment, "sync_data", sync_data)
    log.roll()
    assert deleted
    assert log.segment_base_offsets[0] > first
    assert log.is_trusted
