"""Compaction against a plain model, against crashes at every step of a swap, and with readers and writers."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import uuid
from pathlib import Path

import pytest
from compaction_harness import FILES, RETENTION_MS, compact, make_config, open_log, put, read_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment_cache import SegmentCache
from barnabas.records.batch import iterate_headers
from barnabas.records.record import Record, decode_records, encode_batch

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5), st.integers(0, 4)
        ),
        st.tuples(st.just("clean"), st.sampled_from([1, 3, 1_000]), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([10, RETENTION_MS // 2, RETENTION_MS]), st.just(0)),
        st.tuples(st.just("reopen"), st.booleans(), st.just(0)),
    ),
    min_size=5,
    max_size=60,
)


class Model:
    """Every record ever written, and when each tombstone was first seen by a cleaning."""

    def __init__(self, directory: str, size: int) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.size = size
        self.written: list[Record] = []
        self.sequences = [0, 0, 0]
        self.last_batches: dict[int, bytes] = {}
        self.cleaned_at: dict[int, int] = {}
        self.log = open_log(directory, self.clock, segment_bytes=size)

    def put(self, pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        producer = len(self.written) % 3
        now = self.clock.now_ms()
        batch = encode_batch(
            [(now, key, value, ()) for key, value in pairs],
            compression=codec,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
        )
        self.sequences[producer] += len(pairs)
        first = self.log.append_as_leader(batch, 0).base_offset
        assert first == len(self.written)
        self.written += [Record(first + at, now, key, value, ()) for at, (key, value) in enumerate(pairs)]
        self.last_batches[producer] = batch

    def clean(self, keys_max: int) -> None:
        before = self.log.log_end_offset
        bound = self.log.segment_base_offsets[-1]
        tail = self.log.read(bound, 1 << 20) if bound < before else b""
        compact(self.log, self.clock, keys_max=keys_max)
        for record in self.written[:bound]:
            self.cleaned_at.setdefault(record.offset, self.clock.now_ms())
        assert self.log.log_end_offset == before
        assert (self.log.read(bound, 1 << 20) if bound < before else b"") == tail

    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.close()
        else:
            self.log.release()
        point = self.log.recovery_checkpoint if clean else 0
        self.log = open_log(
            self.directory, self.clock, clean=clean, recovery_point=point, segment_bytes=self.size
        )
        assert (self.log.recovery_report.segments_checked == 0) is clean

    def check(self) -> None:
        found = read_all(self.log)
        kept = {record.offset for record in found}
        assert [record for record in self.written if record.offset in kept] == found
        assert {r.offset for r in self.written if r.offset >= self.log.first_dirty_offset} <= kept
        latest = {record.key: record for record in self.written}
        clean_end = max(self.log.first_dirty_offset, 0)
        newest_clean = {record.key: record for record in self.written[:clean_end]}
        for record in latest.values():
            # Only a tombstone may be gone, and only when its time since a first cleaning is over.
            is_over = (
                self.cleaned_at.get(record.offset, self.clock.now_ms()) + RETENTION_MS <= self.clock.now_ms()
            )
            assert record.offset in kept or (record.value is None and is_over)
        for record in found:
            if record.offset < clean_end:
                assert newest_clean[record.key] == record
        for producer, batch in self.last_batches.items():
            assert self.log.append_as_leader(batch, 0).duplicate, producer


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, size=st.sampled_from([250, 600, 5_000]))
def test_of_each_key_the_last_record_stays(steps: list[tuple[str, object, int]], size: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = Model(directory, size)
        for kind, value, codec in steps:
            if kind == "put":
                model.put(value, codec)  # type: ignore[arg-type]
            elif kind == "clean":
                model.clean(value)  # type: ignore[arg-type]
            elif kind == "wait":
                model.clock.advance(value)  # type: ignore[arg-type]
            else:
                first_dirty = model.log.first_dirty_offset
                model.reopen(bool(value))
                model.log.first_dirty_offset = first_dirty
            model.check()
        model.log.roll()
        model.clean(1_000)
        model.clock.advance(RETENTION_MS)
        model.put([(b"other", b"x")], 0)
        model.log.roll()
        model.clean(1_000)
        model.check()
        values = {record.key: record.value for record in model.written}
        found = {record.key: record.value for record in read_all(model.log)}
        assert found == {key: value for key, value in values.items() if value is not None}
        model.log.release()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_crash_at_any_file_operation_loses_nothing(
    tmp_path: Path, clock: ManualClock, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory as it is before each rename or removal, opened anew."""
    log = open_log(str(tmp_path / "log"), clock, segment_bytes=400)
    for number in range(30):
        put(
            log,
            clock,
            (b"k%d" % (number % 4), b"%d" % number),
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
    last = {record.key: record for record in read_all(log)}
    copies: list[Path] = []
    real = getattr(FILES, call)

    def copy_first(*arguments: str) -> None:
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "log", copies[-1])
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FILES, call, copy_first)
        compact(log, clock)
    expected = read_all(log)
    assert len(copies) > 5
    duplicate = encode_batch(
        [(clock.now_ms(), b"k1", b"29", ())], producer_id=1, producer_epoch=0, base_sequence=29
    )
    for number, copy in enumerate(copies):
        clean = number % 2 == 0
        point = log.log_end_offset if clean else 0
        again = open_log(str(copy), clock, clean=clean, recovery_point=point, segment_bytes=400)
        found = read_all(again)
        assert {record.key: record for record in found} == last
        assert again.log_end_offset == 30
        assert again.append_as_leader(duplicate, 0).duplicate
        for suffix in ("swap", "cleaned", "deleted"):
            assert not list(copy.rglob(f"*.{suffix}"))
        compact(again, clock)
        assert read_all(again) == expected
        for wanted in (clock.now_ms(), clock.now_ms() - 1):
            assert again.offset_for_timestamp(wanted) == log.offset_for_timestamp(wanted)
        again.release()


def test_readers_and_writers_go_on_while_a_log_is_compacted(tmp_path: Path) -> None:
    """A cache of one open segment makes every read open files anew, before, during and after swaps."""
    clock = ManualClock()
    log = PartitionLog.open(
        str(tmp_path),
        "t",
        0,
        uuid.UUID(int=9),
        make_config(segment_bytes=800),
        seeded_environment(1, clock),
        cache=SegmentCache(1),
    )
    failures: list[BaseException] = []
    done = threading.Event()

    def read(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not done.is_set():
                offset = chance.randrange(log.log_end_offset + 1)
                for position, header in iterate_headers(data := log.read(offset, 2_000)):
                    assert header.last_offset >= offset
                    for record in decode_records(data[position : position + header.size_in_bytes]):
                        assert record.value == b"%d" % record.offset
        except BaseException as error:
            failures.append(error)

    def write() -> None:
        try:
            for number in range(600):
                put(log, clock, (b"k%d" % (number % 7), b"%d" % number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    while threads[-1].is_alive():
        compact(log, clock)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    log.roll()
    compact(log, clock)
    assert [record.offset for record in read_all(log)] == list(range(593, 600))
