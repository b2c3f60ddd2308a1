"""The checks find what they are for: in files of nodes, and in what clients are told."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from chaos_copies import SILENCE_SECONDS_MAX
from chaos_history import Judge, Recorder
from chaos_logs import check_copies, check_files
from chaos_round import SERVES_SECONDS_MAX, _longest_pause
from copying_worker import AGAIN_SECONDS_MAX
from history import Place

from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

PLACE = Place("topic", 0)
VALUES = [f"idempotent-a:{number}:x".encode() for number in range(4)]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(Judge(), tmp_path / "history.jsonl")
    yield recorder
    recorder.close()


def write_log(folder: Path, values: Sequence[bytes], first_offset: int = 0) -> None:
    folder = folder / str(PLACE)
    folder.mkdir(parents=True)
    log = bytearray()
    for offset, value in enumerate(values, start=first_offset):
        batch = encode_batch([(1, None, value, ())])
        log += struct.pack(">q", offset) + batch[8:]  # the CRC does not cover it
    (folder / "00000000000000000000.log").write_bytes(log)


def check(recorder: Recorder, tmp_path: Path, *logs: Sequence[bytes]) -> str:
    nodes = {f"node-{number}": tmp_path / f"node-{number}" for number in range(len(logs))}
    for folder, values in zip(nodes.values(), logs, strict=True):
        write_log(folder, values)
    check_files(recorder.judge, recorder.history, nodes, [PLACE])
    return "\n".join(recorder.judge.violations)


def test_equal_logs_with_all_that_was_acknowledged_are_right(recorder: Recorder, tmp_path: Path) -> None:
    for offset, value in enumerate(VALUES):
        recorder.on_acknowledged(PLACE, offset, value)
        recorder.on_read(PLACE, offset, value, "a consumer")
    assert check(recorder, tmp_path, VALUES, VALUES) == ""
    assert recorder.unread() == 0


def test_a_lost_record_is_found(recorder: Recorder, tmp_path: Path) -> None:
    for offset, value in enumerate(VALUES):
        recorder.on_acknowledged(PLACE, offset, value)
    assert "LOST" in check(recorder, tmp_path, VALUES[:3], VALUES)


def test_a_record_at_another_offset_is_found(recorder: Recorder, tmp_path: Path) -> None:
    recorder.on_acknowledged(PLACE, 1, VALUES[0])
    assert "LOST" in check(recorder, tmp_path, VALUES, VALUES)


def test_a_record_that_was_read_and_is_gone_is_found(recorder: Recorder, tmp_path: Path) -> None:
    recorder.on_read(PLACE, 3, VALUES[3], "a consumer")
    assert "READ AND LOST" in check(recorder, tmp_path, VALUES[:3], VALUES[:3])


def test_a_doubled_record_is_found(recorder: Recorder, tmp_path: Path) -> None:
    assert "DOUBLED" in check(recorder, tmp_path, [*VALUES, VALUES[3]], [*VALUES, VALUES[3]])


def test_another_order_is_found(recorder: Recorder, tmp_path: Path) -> None:
    other = [VALUES[0], VALUES[2], VALUES[1], VALUES[3]]
    assert "OUT OF ORDER" in check(recorder, tmp_path, other, other)


def test_replicas_that_differ_are_found(recorder: Recorder, tmp_path: Path) -> None:
    assert "differ" in check(recorder, tmp_path, VALUES, VALUES[:3])


def test_a_damaged_batch_is_found(recorder: Recorder, tmp_path: Path) -> None:
    write_log(tmp_path / "node-0", VALUES)
    file = tmp_path / "node-0" / str(PLACE) / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    check_files(recorder.judge, recorder.history, {"node-0": tmp_path / "node-0"}, [PLACE])
    assert "damaged" in recorder.judge.violations[0]


def test_two_values_read_at_one_offset_are_found(recorder: Recorder) -> None:
    recorder.on_read(PLACE, 0, VALUES[0], "one consumer")
    recorder.on_read(PLACE, 0, VALUES[1], "another one")
    assert recorder.judge.violations


def test_a_committed_offset_that_goes_back_is_found(recorder: Recorder) -> None:
    recorder.on_committed(PLACE, 10, 0)
    recorder.on_committed_offset(PLACE, recorder.committed[PLACE], 10)
    assert recorder.judge.violations == []
    recorder.on_committed_offset(PLACE, recorder.committed[PLACE], 9)
    assert "WENT BACK" in recorder.judge.violations[0]


def test_a_high_watermark_that_goes_back_is_found(recorder: Recorder) -> None:
    def told(leader_epoch: int, offset: int) -> None:
        recorder.on_latest_offset(PLACE, recorder.latest_offsets(PLACE), leader_epoch, offset)

    told(3, 10)
    told(4, 10)
    told(4, 12)
    told(3, 11)  # a former leader that was not told yet
    assert recorder.judge.violations == []
    told(5, 11)
    assert "WENT BACK" in recorder.judge.violations[0]


def test_a_pause_begins_with_the_last_acknowledgement_before_the_fault() -> None:
    assert _longest_pause([1.0, 5.0, 5.1, 6.0, 6.1], began=5.05) == pytest.approx(0.9)
    assert _longest_pause([1.0, 5.0], began=6.0) == 0.0
    assert _longest_pause([], began=6.0) == 0.0


# Copies, written in transactions


def write_copies(folder: Path, *parts: tuple[bytes, int] | tuple[bool, int]) -> dict[str, Path]:
    """A value of a producer, or whether that producer's transaction is committed, one offset each."""
    log = bytearray()
    for offset, (what, producer_id) in enumerate(parts):
        if isinstance(what, bytes):
            batch = encode_batch(
                [(1, None, what, ())],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=offset,
                transactional=True,
            )
        else:
            batch = encode_marker(
                committed=what, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
            )
        log += struct.pack(">q", offset) + batch[8:]
    (folder / str(PLACE)).mkdir(parents=True)
    (folder / str(PLACE) / "00000000000000000000.log").write_bytes(log)
    return {folder.name: folder}


def checked(recorder: Recorder, nodes: dict[str, Path]) -> str:
    check_copies(recorder.judge, recorder.copies, nodes, [PLACE])
    return "\n".join(recorder.judge.violations)


def test_copies_are_right_where_what_is_committed_was_read(recorder: Recorder, tmp_path: Path) -> None:
    nodes = write_copies(tmp_path / "a", (VALUES[0], 1), (VALUES[1], 2), (False, 2), (True, 1))
    recorder.on_copy_read(PLACE, 0, VALUES[0])
    assert check_copies(recorder.judge, recorder.copies, nodes, [PLACE]) == (1, 1)
    assert recorder.judge.violations == []


def test_what_was_aborted_and_read_is_found(recorder: Recorder, tmp_path: Path) -> None:
    recorder.on_copy_read(PLACE, 0, VALUES[0])
    assert "ABORTED AND READ" in checked(recorder, write_copies(tmp_path / "a", (VALUES[0], 1), (False, 1)))


def test_what_was_committed_and_not_read_is_found(recorder: Recorder, tmp_path: Path) -> None:
    nodes = write_copies(tmp_path / "a", (VALUES[0], 1), (True, 1))
    assert "COMMITTED AND NOT READ" in checked(recorder, nodes)


def test_a_transaction_that_is_open_is_found(recorder: Recorder, tmp_path: Path) -> None:
    assert "OPEN" in checked(recorder, write_copies(tmp_path / "a", (VALUES[0], 1)))


def test_replicas_that_do_not_agree_on_an_end_are_found(recorder: Recorder, tmp_path: Path) -> None:
    recorder.on_copy_read(PLACE, 0, VALUES[0])
    nodes = write_copies(tmp_path / "a", (VALUES[0], 1), (True, 1))
    nodes |= write_copies(tmp_path / "b", (VALUES[0], 1), (False, 1))
    assert "differ" in checked(recorder, nodes)


def test_a_record_that_is_copied_twice_is_found(recorder: Recorder) -> None:
    recorder.on_copy_read(PLACE, 0, VALUES[0])
    recorder.on_copy_read(PLACE, 0, VALUES[0])
    assert recorder.judge.violations == []
    recorder.on_copy_read(PLACE, 1, VALUES[0])
    assert "COPIED TWICE" in recorder.judge.violations[0]


def test_what_is_not_copied_yet_is_known(recorder: Recorder) -> None:
    recorder.on_acknowledged(PLACE, -1, VALUES[0])
    assert recorder.uncopied() == 1
    recorder.on_copy_read(Place("copies", 0), 5, VALUES[0])
    assert recorder.uncopied() == 0


def test_a_client_that_stands_still_is_seen_before_it_is_replaced() -> None:
    assert SILENCE_SECONDS_MAX < SERVES_SECONDS_MAX < AGAIN_SECONDS_MAX
