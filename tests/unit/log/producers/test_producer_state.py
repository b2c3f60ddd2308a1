"""Idempotence and transactions: what a producer may append next, and what is stable."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendInfo, AppendOrigin
from barnabas.log.producers.producer_snapshot import decode_snapshot, encode_snapshot, snapshot_offsets
from barnabas.log.producers.producer_state import BatchMetadata, ProducerEntry
from barnabas.log.producers.verification_guards import UNGUARDED
from barnabas.records.batch import SEQUENCE_MAX
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

CLOCK = ManualClock()


def open_log(path: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        str(path),
        "t",
        0,
        uuid.UUID(int=1),
        LogConfig(segment_bytes=1000),
        seeded_environment(clock=CLOCK),
        clean_shutdown=clean,
        recovery_point=recovery_point,
    )


def produce(
    log: PartitionLog,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = 1,
    transactional: bool = False,
) -> AppendInfo:
    records = [(CLOCK.now_ms(), b"k", b"v", ())] * count
    batch = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return log.append_as_leader(batch, 0, guard=UNGUARDED)


def end(
    log: PartitionLog, *, committed: bool, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = 1
) -> AppendInfo:
    marker = encode_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=CLOCK.now_ms(),
    )
    return log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)


def refused(code: ErrorCode, log: PartitionLog, *args: int, **options: int) -> None:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        produce(log, *args, **options)  # type: ignore[arg-type]
    assert caught.value.code is code
    assert log.log_end_offset == before


def test_one_of_the_last_five_batches_is_answered_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    infos = [produce(log, n * 2, 2) for n in range(6)]
    for n in range(1, 6):
        again = produce(log, n * 2, 2)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == infos[n][:2]
        assert again.log_append_time_ms >= 0, "Kafka tells the batch's newest timestamp"
    assert log.log_end_offset == 12
    refused(ErrorCode.out_of_order_sequence_number, log, 0, 2)


def test_a_gap_is_out_of_order(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, 3)
    refused(ErrorCode.out_of_order_sequence_number, log, 4)
    refused(ErrorCode.out_of_order_sequence_number, log, 2)
    assert produce(log, 3).base_offset == 3


def test_an_unknown_producer_may_start_anywhere(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert produce(log, 17).base_offset == 0
    assert produce(log, 18).base_offset == 1


def test_epochs_only_rise_and_start_at_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, epoch=3)
    refused(ErrorCode.invalid_producer_epoch, log, 1, epoch=2)
    refused(ErrorCode.out_of_order_sequence_number, log, 1, epoch=4)
    produce(log, 0, epoch=4)
    refused(ErrorCode.invalid_producer_epoch, log, 1, epoch=3)


def test_sequences_wrap(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, SEQUENCE_MAX - 1, 4)
    assert produce(log, SEQUENCE_MAX - 1, 4).duplicate
    assert produce(log, 2).base_offset == 4
    produce(log, SEQUENCE_MAX, producer_id=2)
    assert produce(log, 0, producer_id=2).base_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_state_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    for n in range(40):
        produce(log, n)
    produce(log, 0, producer_id=2, transactional=True)
    if clean:
        log.close()
    else:
        log.release()
    again = open_log(tmp_path, clean=clean, recovery_point=log.recovery_checkpoint if clean else 20)
    assert produce(again, 39).duplicate
    assert produce(again, 40).base_offset == 41
    assert again.last_stable_offset(42) == 40
    refused(ErrorCode.invalid_txn_state, again, 1, producer_id=2)
    assert set(snapshot_offsets(again.directory)) <= {*again.segment_base_offsets, 41}


def test_state_is_rebuilt_without_snapshots(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(40):
        produce(log, n)
    log.close()
    for path in Path(log.directory).glob("*.snapshot"):
        path.write_bytes(b"\0\1broken")
    again = open_log(tmp_path, clean=True, recovery_point=log.recovery_checkpoint)
    assert again.recovery_report.snapshot_offset == -1
    assert [produce(again, n).duplicate for n in range(35, 41)] == [True] * 5 + [False]


def test_truncation_takes_the_state_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(40):
        produce(log, n)
    produce(log, 0, producer_id=2, transactional=True)
    assert log.truncate_to(10) == 10
    assert log.last_stable_offset(10) == 10
    assert produce(log, 9).duplicate
    refused(ErrorCode.out_of_order_sequence_number, log, 11)
    assert produce(log, 10).base_offset == 10


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0)
    produce(log, 0, producer_id=2, transactional=True)
    CLOCK.advance(1000)
    assert log.expire_producers(2000) == 0
    assert log.expire_producers(1000) == 1
    assert set(log.producer_state.producers) == {2}


def test_the_last_stable_offset_waits_for_the_marker_and_its_replication(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0)
    produce(log, 0, producer_id=5, transactional=True)
    produce(log, 0, producer_id=6, transactional=True)
    assert log.last_stable_offset(3) == 1
    end(log, committed=True, producer_id=5)
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(4) == 2
    end(log, committed=False, producer_id=6)
    assert log.last_stable_offset(5) == 5
    assert [tuple(each) for each in log.aborted_transactions(0, 5)] == [(6, 2, 4, 5)]
    assert log.aborted_transactions(0, 2) == []
    assert produce(log, 1, producer_id=6, transactional=True).base_offset == 5


def test_markers_are_fenced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    produce(log, 0, epoch=2, transactional=True)
    with pytest.raises(KafkaError) as caught:
        end(log, committed=True, epoch=1)
    assert caught.value.code is ErrorCode.invalid_producer_epoch
    end(log, committed=True, epoch=2, coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        end(log, committed=True, epoch=2, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.transaction_coordinator_fenced
    # A marker that bumps the epoch (KIP-890) starts the sequence anew.
    end(log, committed=True, epoch=3, coordinator_epoch=5)
    refused(ErrorCode.out_of_order_sequence_number, log, 1, epoch=3)
    produce(log, 0, epoch=3)


def test_aborted_transactions_survive_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(30):
        produce(log, n, transactional=True)
        end(log, committed=n % 2 == 0)
    expected = log.aborted_transactions(0, 60)
    assert len(expected) == 15
    log.release()
    again = open_log(tmp_path, recovery_point=25)
    assert again.aborted_transactions(0, 60) == expected
    again.truncate_to(40)
    assert again.aborted_transactions(0, 60) == expected[:10]


ENTRIES = st.builds(
    ProducerEntry,
    st.integers(0, 2**62),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**50),
    st.integers(-1, 2**50),
    st.lists(
        st.builds(
            BatchMetadata,
            st.integers(0, SEQUENCE_MAX),
            st.integers(0, 2**50),
            st.integers(0, 1000),
            st.integers(0, 2**50),
        ),
        max_size=5,
    ),
)


def plain(entry: ProducerEntry) -> tuple[int, ...]:
    return tuple(getattr(entry, name) for name in ProducerEntry.__slots__ if name != "batches")


UNIQUE = st.lists(ENTRIES, max_size=5, unique_by=lambda entry: entry.producer_id)


@given(entries=UNIQUE, at=st.integers(0), flip=st.integers(1, 255))
def test_snapshots_round_trip_and_notice_damage(entries: list[ProducerEntry], at: int, flip: int) -> None:
    data = encode_snapshot(entries)
    decoded = decode_snapshot(data)
    assert decoded is not None
    assert [plain(entry) for entry in decoded] == [plain(entry) for entry in entries]
    for got, entry in zip(decoded, entries, strict=True):
        # The format has one timestamp for the newest batch and its producer.
        newest = [batch._replace(timestamp=entry.last_timestamp) for batch in entry.batches[-1:]]
        assert got.batches == [*entry.batches[:-1], *newest]
    damaged = bytearray(data)
    damaged[at % len(data)] ^= flip
    assert decode_snapshot(bytes(damaged)) is None
    assert decode_snapshot(data[:-1]) is None


def stop(log: PartitionLog) -> dict[str, int]:
    log.close()
    return {"recovery_point": log.recovery_checkpoint}


def kill(log: PartitionLog) -> dict[str, int]:
    log.release()
    return {}


def kill_behind_a_roll(log: PartitionLog) -> dict[str, int]:
    """What stands before the roll was synced: it is not read again."""
    log.roll()
    log.release()
    return {"recovery_point": log.log_end_offset}


@pytest.mark.parametrize("end_it", [stop, kill, kill_behind_a_roll])
def test_what_was_in_flight_is_recognised_however_the_log_was_ended(
    tmp_path: Path, end_it: Callable[[PartitionLog], dict[str, int]]
) -> None:
    """A producer may have five batches on their way: any of them may be written, and not answered."""
    log = open_log(tmp_path)
    written = [produce(log, sequence) for sequence in range(5)]
    for _ in range(2):  # the second time nothing was appended in between
        options = end_it(log)
        log = open_log(tmp_path, clean=end_it is stop, **options)
        for sequence, info in enumerate(written):
            again = produce(log, sequence)
            assert again.duplicate
            assert again.base_offset == info.base_offset
    assert log.log_end_offset == 5
    assert produce(log, 5).base_offset == 5


def test_a_new_producer_epoch_keeps_no_batches_of_the_former(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        produce(log, sequence)
    produce(log, 0, epoch=1)
    log.close()
    newest = max(Path(log.directory).glob("*.snapshot"))
    (entry,) = decode_snapshot(newest.read_bytes()) or []
    assert [batch.last_offset for batch in entry.batches] == [3]


def test_kafka_reads_of_a_snapshot_what_it_would_have_written() -> None:
    """Of several entries of a producer the last one counts there, and it has the open transaction."""
    batches = [BatchMetadata(sequence, 10 + sequence, 0, 1000 + sequence) for sequence in range(5)]
    entries = [ProducerEntry(7, 3, 2, 2000, 11, batches), ProducerEntry(8, 0, -1, 5, -1)]
    last_only = [ProducerEntry(7, 3, 2, 2000, 11, batches[-1:]), entries[1]]
    header, size = 10, 46
    whole, kafkas = encode_snapshot(entries)[header:], encode_snapshot(last_only)[header:]
    rows = {whole[at : at + 8]: whole[at : at + size] for at in range(0, len(whole), size)}
    assert b"".join(rows.values()) == kafkas
