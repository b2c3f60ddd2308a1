"""The log against a plain list, and against a crash at any byte."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import Record, decode_records, encode_batch

TOPIC_ID = uuid.UUID(int=7)
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, message_timestamp_after_max_ms=2**60)
RELAXED = settings(max_examples=40, suppress_health_check=list(HealthCheck))


def open_log(
    directory: str, *, clean: bool = False, config: LogConfig = SMALL, **options: int
) -> PartitionLog:
    return PartitionLog.open(
        directory,
        "t",
        0,
        TOPIC_ID,
        config,
        seeded_environment(1),
        clean_shutdown=clean,
        **options,  # type: ignore[arg-type]
    )


def decode(data: bytes) -> list[Record]:
    return [
        record
        for position, header in iterate_headers(data)
        for record in decode_records(data[position : position + header.size_in_bytes])
    ]


def read_all(log: PartitionLog) -> list[Record]:
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = [record for record in decode(log.read(offset, 500)) if record.offset >= offset]
        assert found
        records += found
        offset = records[-1].offset + 1
    return records


BATCH = st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=150)), min_size=1, max_size=6)


def fill(log: PartitionLog, batches: list[list[tuple[int, bytes]]], epoch: int = 0) -> list[Record]:
    model = []
    for batch in batches:
        info = log.append_as_leader(encode_batch([(t, None, v, ()) for t, v in batch]), epoch)
        model += [Record(info.base_offset + i, t, None, v, ()) for i, (t, v) in enumerate(batch)]
        assert info.last_offset == info.base_offset + len(batch) - 1
    return model


@RELAXED
@given(batches=st.lists(BATCH, max_size=40), data=st.data())
def test_reads_equal_a_list(batches: list[list[tuple[int, bytes]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        model = fill(log, batches)
        assert log.log_end_offset == len(model)
        assert read_all(log) == model
        for _ in range(10):
            offset = data.draw(st.integers(0, len(model)))
            bound = data.draw(st.integers(0, len(model)))
            size = data.draw(st.integers(0, 3000))
            minimum = data.draw(st.booleans())
            raw = log.read(offset, size, upper_bound_offset=bound, min_one_batch=minimum)
            found = decode(raw)
            assert sum(header.size_in_bytes for _, header in iterate_headers(raw)) == len(raw)
            assert found == model[found[0].offset : found[0].offset + len(found)] if found else True
            if found:
                assert found[0].offset <= offset <= found[-1].offset
                assert found[-1].offset < bound
                assert len(raw) <= size or (minimum and len(list(iterate_headers(raw))) == 1)
        wanted = data.draw(st.integers(0, 1001))
        expected = next(((r.offset, r.timestamp, 0) for r in model if r.timestamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
        greatest = max(model, key=lambda r: r.timestamp, default=None)
        assert log.max_timestamp() == (None if greatest is None else (greatest.offset, greatest.timestamp, 0))
        log.close()
        again = open_log(directory, clean=True, recovery_point=log.recovery_checkpoint)
        assert again.recovery_report.segments_checked == 0
        assert read_all(again) == model
        assert again.offset_for_timestamp(wanted) == expected
        again.release()


@RELAXED
@given(batches=st.lists(BATCH, min_size=1, max_size=25), data=st.data())
def test_a_crash_at_any_byte_leaves_a_prefix(
    batches: list[list[tuple[int, bytes]]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        model = fill(log, batches)
        last = Path(log.directory) / f"{log.segment_base_offsets[-1]:020d}.log"
        base = log.segment_base_offsets[-1]
        log.release()
        content = last.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        garbage = data.draw(st.binary(max_size=100))
        last.write_bytes(content[:cut] + garbage)
        again = open_log(directory)
        end = again.log_end_offset
        kept = [h for p, h in iterate_headers(content) if p + h.size_in_bytes <= cut]
        assert end == (kept[-1].next_offset if kept else base)
        assert read_all(again) == model[:end]
        more = fill(again, [[(5, b"more")]])
        assert read_all(again) == model[:end] + more
        again.release()


@RELAXED
@given(batches=st.lists(BATCH, min_size=1, max_size=25), data=st.data())
def test_truncation_leaves_a_prefix(batches: list[list[tuple[int, bytes]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        model = fill(log, batches)
        offset = data.draw(st.integers(0, len(model)))
        end = log.truncate_to(offset)
        assert end == log.log_end_offset <= offset
        assert read_all(log) == model[:end]
        model = model[:end] + fill(log, [[(9, b"z" * 50)]] * 8, epoch=1)
        assert read_all(log) == model
        wanted = data.draw(st.integers(0, 1001))
        expected = next((r.offset for r in model if r.timestamp >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found.offset if found else None) == expected
        log.release()


@RELAXED
@given(batches=st.lists(BATCH, min_size=1, max_size=30))
def test_rebuilt_indexes_equal_the_written_ones(batches: list[list[tuple[int, bytes]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        fill(log, batches)
        log.close()
        files = sorted(p for p in Path(log.directory).iterdir() if p.suffix in (".index", ".timeindex"))
        written = {path: path.read_bytes() for path in files}
        for path in files:
            path.unlink()
        again = open_log(directory)
        again.close()
        assert {path: path.read_bytes() for path in files} == written


def test_a_follower_holds_the_same_bytes(tmp_path: Path) -> None:
    leader, follower = open_log(str(tmp_path / "a")), open_log(str(tmp_path / "b"))
    fill(leader, [[(n, bytes(n))] for n in range(60)])
    fill(leader, [[(n, bytes(n))] for n in range(60)], epoch=3)
    while follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(follower.log_end_offset, 700)
        assert follower.append_as_follower(fetched + fetched[:40]) is not None
    assert follower.epochs.entries == leader.epochs.entries == ((0, 0), (3, 60))
    assert read_all(follower) == read_all(leader)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(fetched)
    assert caught.value.code is ErrorCode.offset_out_of_range
    assert follower.append_as_follower(fetched[:30]) is None


def test_an_index_that_does_not_fit_its_log_is_rebuilt(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    model = fill(log, [[(n, bytes(100))] for n in range(60)])
    log.close()
    directory = Path(log.directory)
    first, second = sorted(directory.glob("*.index"))[:2]
    first.write_bytes(b"\x7f" * 16)
    second.write_bytes(b"odd")
    min(directory.glob("*.timeindex")).unlink()
    again = open_log(str(tmp_path), clean=True, recovery_point=log.recovery_checkpoint)
    assert read_all(again) == model
    found = again.offset_for_timestamp(30)
    assert found is not None
    assert found.offset == 30


def test_corruption_in_the_middle_ends_the_log_and_sets_aside_what_follows(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    model = fill(log, [[(n, bytes(100))] for n in range(60)])
    bases = log.segment_base_offsets
    log.release()
    path = Path(log.directory) / f"{bases[1]:020d}.log"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    kept_elsewhere = tmp_path / "copy"
    shutil.copytree(log.directory, kept_elsewhere / "t-0")
    recovered = open_log(str(tmp_path))
    report = recovered.recovery_report
    assert recovered.log_end_offset == report.truncated_at_offset == bases[1] + 1
    assert report.segments_set_aside == bases[2:]
    for base in bases[2:]:
        name = f"{base:020d}.log"
        assert (Path(log.directory) / f"{name}.aside").read_bytes() == (
            kept_elsewhere / "t-0" / name
        ).read_bytes()
    assert "CRC" in report.reason
    assert read_all(recovered) == model[: bases[1] + 1]
    # Below the recovery point nothing is looked at, as in Kafka.
    trusted = open_log(str(kept_elsewhere), recovery_point=60)
    assert trusted.log_end_offset == 60


def test_offsets_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    fill(log, [[(n, b"")] for n in range(5)])
    assert log.read(5, 100) == b""
    for offset in (-1, 6):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.offset_out_of_range


def test_descriptors_stay_within_the_limit(tmp_path: Path) -> None:
    from barnabas.log.segments.segment_cache import SegmentCache

    cache = SegmentCache(3)
    log = PartitionLog.open(str(tmp_path), "t", 0, TOPIC_ID, SMALL, seeded_environment(), cache=cache)
    model = fill(log, [[(n, bytes(500))] for n in range(60)])
    assert len(log.segment_base_offsets) > 10
    assert read_all(log) == model
    opened = [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.exists()]
    assert sum(str(tmp_path) in target for target in opened) == 4
    assert len(cache) == 3
    log.release()
    opened = [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.exists()]
    assert sum(str(tmp_path) in target for target in opened) == 0
