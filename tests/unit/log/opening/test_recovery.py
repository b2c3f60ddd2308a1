"""What a crash may leave in a partition's directory, and what recovery makes of it."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recovery_harness import boundaries, damaged_log, files, fill, offsets, open_log, segment_path

from barnabas.log.config import LogConfig
from barnabas.log.opening.recovery import Gap
from barnabas.records.record import encode_batch

RELAXED = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def test_a_lost_tail_at_a_batch_boundary_is_reported_and_the_rest_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    fill(log, 20)
    bases = log.segment_base_offsets
    path = segment_path(log, 1)
    log.release()
    os.truncate(path, boundaries(path.read_bytes())[-3])
    again = open_log(tmp_path)
    lost = Gap(bases[2] - 2, bases[2])
    assert again.recovery_report.gaps == [lost]
    assert offsets(again) == [offset for offset in range(20) if not lost.start <= offset < lost.end]
    assert again.segment_base_offsets == bases
    fill(again, 1)
    assert again.log_end_offset == 21
    (said,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "offsets are lost" in said.getMessage()
    fields = {"log": again.directory, "offsets": 2, "first_offset": lost.start, "last_offset": lost.end - 1}
    assert vars(said)["fields"] == fields


def test_a_gap_below_the_recovery_point_is_found_by_the_ends_of_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 20)
    bases = log.segment_base_offsets
    path = segment_path(log, 0)
    log.flush()
    log.release()
    os.truncate(path, boundaries(path.read_bytes())[-2] + 30)
    again = open_log(tmp_path, recovery_point=20)
    assert again.recovery_report.gaps == [Gap(bases[1] - 1, bases[1])]
    assert again.recovery_report.segments_checked == 1
    assert offsets(again) == [offset for offset in range(20) if offset != bases[1] - 1]


def test_the_gaps_of_a_compacted_log_are_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    fill(log, 20)
    path = segment_path(log, 1)
    log.release()
    os.truncate(path, boundaries(path.read_bytes())[-2])
    for recovery_point in (0, 20):
        again = open_log(tmp_path, first_dirty_offset=0, recovery_point=recovery_point)
        assert again.recovery_report.gaps == []
        assert len(offsets(again)) == 19
        again.release()
    assert caplog.records == []


@RELAXED
@given(data=st.data(), count=st.integers(1, 25), recovery_point=st.integers(0, 25))
def test_a_crash_at_any_byte_of_any_segment(data: st.DataObject, count: int, recovery_point: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(directory)
        fill(log, count, producer_id=5)
        bases = [*log.segment_base_offsets, count]
        recovery_point = min(recovery_point, count)
        number = data.draw(st.integers(0, len(bases) - 2))
        checked = number == len(bases) - 2 or bases[number + 1] > recovery_point
        path = segment_path(log, number)
        log.release()
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        junk = st.one_of(st.binary(max_size=100), st.integers(0, 5000).map(bytes))
        # Below the recovery point only the ends of segments are looked at.
        tail = data.draw(junk) if checked else b""
        left = content[:cut] + tail
        path.write_bytes(left)
        # What follows the cut may be just what was there.
        whole = [end for end in boundaries(content) if left[:end] == content[:end]]
        kept_to = bases[number] + len(whole) - 1
        is_last = number == len(bases) - 2
        again = open_log(directory, recovery_point=recovery_point)
        report = again.recovery_report
        if whole[-1] == len(left) or not checked:
            expected = [*range(kept_to), *range(bases[number + 1], count)]
            lost = kept_to < bases[number + 1]
            assert report.gaps == ([Gap(kept_to, bases[number + 1])] if lost and not is_last else [])
        else:
            expected = list(range(kept_to))
            assert report.truncated_at_offset == again.log_end_offset == kept_to
            assert report.segments_set_aside == tuple(bases[number + 1 : -1])
        assert offsets(again) == expected
        assert again.producer_state.producers[5].last_sequence == expected[-1] if expected else True
        end = again.log_end_offset
        fill(again, 2)
        assert offsets(again) == [*expected, end, end + 1]
        again.release()
        once_more = open_log(directory, recovery_point=again.recovery_point)
        assert offsets(once_more) == [*expected, end, end + 1]


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_below_the_end_is_a_rolls_orphan(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    fill(log, 18)
    bases = log.segment_base_offsets
    log.close()
    directory = Path(log.directory)
    orphans = [bases[1] + 1, bases[2] + 2, 17]
    for base in orphans:
        for suffix in (".log", ".index", ".timeindex", ".snapshot"):
            (directory / f"{base:020d}{suffix}").touch()
    again = open_log(tmp_path, clean=clean, recovery_point=log.recovery_checkpoint if clean else 0)
    assert again.recovery_report.orphans_removed == tuple(orphans)
    assert (again.recovery_report.segments_checked == 0) is clean
    assert again.recovery_report.gaps == []
    assert again.segment_base_offsets == bases
    assert offsets(again) == list(range(18))
    assert not [name for name in files(directory) if int(name[:20] if name[0] == "0" else -1) in orphans]
    fill(again, 1)
    assert again.log_end_offset == 19


def test_an_empty_active_segment_at_the_end_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.roll()
    bases = log.segment_base_offsets
    log.release()
    again = open_log(tmp_path)
    assert (again.segment_base_offsets, again.log_end_offset) == (bases, 3)


def test_segments_that_overlap_lose_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    fill(log, 12)
    bases = log.segment_base_offsets
    first, second = segment_path(log, 0), segment_path(log, 1)
    log.release()
    content = second.read_bytes()
    first.write_bytes(first.read_bytes() + content[: boundaries(content)[2]])
    before = files(log.directory)
    again = open_log(tmp_path)
    assert again.recovery_report.overlaps == (bases[1],)
    assert (again.segment_base_offsets, again.log_end_offset) == (bases, 12)
    assert {name: data for name, data in files(again.directory).items() if name.endswith(".log")} == {
        name: data for name, data in before.items() if name.endswith(".log")
    }
    assert "begin before the one before them ends" in caplog.text


def test_a_log_that_ends_below_its_recovery_point(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, config=LogConfig())
    fill(log, 100)
    path = segment_path(log, 0)
    log.flush()
    log.release()
    os.truncate(path, boundaries(path.read_bytes())[60])
    again = open_log(tmp_path, config=LogConfig(), recovery_point=100)
    assert (again.log_end_offset, again.recovery_point) == (60, 60)
    assert again.recovery_report.lost_below_recovery_point == 40
    (said,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert vars(said)["fields"] == {"log": again.directory, "log_end_offset": 60, "offsets": 40}


def test_a_log_that_ends_below_its_start_begins_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 12)
    path = segment_path(log, len(log.segment_base_offsets) - 1)
    log.release()
    path.write_bytes(b"")
    again = open_log(tmp_path, log_start_offset=12)
    assert (again.log_start_offset, again.log_end_offset, again.segment_base_offsets) == (12, 12, (12,))
    fill(again, 1)
    again.release()
    assert offsets(open_log(tmp_path, log_start_offset=12)) == [12]


@pytest.mark.parametrize("clean", [True, False])
def test_a_tail_of_zeros_is_cut(tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, config=LogConfig())
    fill(log, 10)
    path, size = segment_path(log, 0), log.size
    log.close()
    os.truncate(path, size + 5000)
    again = open_log(
        tmp_path, config=LogConfig(), clean=clean, recovery_point=log.recovery_checkpoint if clean else 0
    )
    assert (again.log_end_offset, path.stat().st_size) == (10, size)
    assert again.recovery_report.bytes_truncated == 5000
    (said,) = caplog.records
    assert "5000 bytes that begin with zeros" in vars(said)["fields"]["reason"]


@pytest.mark.parametrize(
    ("harm", "clean"),
    [
        ("missing", True),
        ("short", True),
        ("extra", True),
        ("missing", False),
        ("short", False),
        ("wrong", False),
    ],
)
def test_index_files_are_built_anew(tmp_path: Path, clean: bool, harm: str) -> None:
    log = open_log(tmp_path)
    fill(log, 18, producer_id=5)
    log.close()
    directory = Path(log.directory)
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        if harm == "missing":
            path.unlink()
        elif harm == "short":
            path.write_bytes(path.read_bytes()[:-3])
        elif harm == "extra":
            path.write_bytes(path.read_bytes() + b"\x7f" * 24)
        else:
            path.write_bytes(b"\x00\x00\x00\x01\x00\x00\x00\x07" * 3)
    again = open_log(tmp_path, clean=clean, recovery_point=log.recovery_checkpoint if clean else 0)
    assert again.recovery_report.gaps == []
    assert (again.recovery_report.segments_checked == 0) is clean
    assert offsets(again) == list(range(18))
    for wanted in (0, 7, 17):
        found = again.offset_for_timestamp(wanted)
        assert found is not None
        assert found.offset == wanted
    again.close()
    assert offsets(open_log(tmp_path, clean=True, recovery_point=again.recovery_checkpoint)) == list(
        range(18)
    )


@pytest.mark.parametrize("recovery_point", [0, 9, 23])
def test_without_snapshots_the_producers_come_from_the_batches(tmp_path: Path, recovery_point: int) -> None:
    log = open_log(tmp_path)
    fill(log, 23, producer_id=5)
    log.release()
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, recovery_point=recovery_point)
    assert again.recovery_report.snapshot_offset == -1
    assert again.producer_state.producers[5].last_sequence == 22
    repeated = encode_batch(
        [(22, None, b"22" + b"x" * 100, ())], producer_id=5, producer_epoch=0, base_sequence=22
    )
    assert again.append_as_leader(repeated, 0).duplicate


def test_what_others_put_there_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 12)
    log.release()
    directory = Path(log.directory)
    names = ("notes.txt", f"{5:020d}.log.aside", f"{5:020d}.log.aside.1", "x.log", "lost+found.index")
    for name in names:
        (directory / name).write_bytes(b"kept")
    again = open_log(tmp_path)
    assert offsets(again) == list(range(12))
    assert all((directory / name).read_bytes() == b"kept" for name in names)


def test_what_was_set_aside_before_is_not_written_over(tmp_path: Path) -> None:
    damaged_log(tmp_path)
    log = open_log(tmp_path)
    base = log.recovery_report.segments_set_aside[0]
    path = Path(log.directory) / f"{base:020d}.log.aside"
    first = path.read_bytes()
    fill(log, 12, epoch=2)
    middle = segment_path(log, 1)
    log.release()
    content = bytearray(middle.read_bytes())
    content[boundaries(bytes(content))[2] + 70] ^= 1
    middle.write_bytes(content)
    again = open_log(tmp_path)
    assert again.recovery_report.segments_set_aside[0] == base
    assert path.read_bytes() == first
    assert Path(f"{path}.1").stat().st_size > 0
