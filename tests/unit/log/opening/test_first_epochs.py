"""Leader epochs of records of which the epochs' file knows nothing, when a log is opened."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from recovery_harness import CONFIG, FILES, boundaries, fill, open_log, segment_path

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints import leader_epochs
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.opening import first_epochs
from barnabas.log.opening.first_epochs import EpochRun, heaviest_rise
from barnabas.log.partition_log import PartitionLog
from barnabas.log.small_files import SyncError
from barnabas.records.batch import iterate_headers, parse_header, patched_prefix
from barnabas.records.record import encode_batch

THREE_EPOCHS = ((1, 0), (2, 7), (4, 13))


def three_epochs_open(path: Path, *, deleted_to: int = 0) -> PartitionLog:
    """A log of 19 records in the epochs 1, 2 and 4, of which the first three are in one batch."""
    log = open_log(path)
    log.append_as_leader(encode_batch([(1, None, b"v", ())] * 3), 1)
    for count, epoch in ((4, 1), (6, 2), (6, 4)):
        fill(log, count, epoch=epoch)
    log.maybe_increment_log_start_offset(deleted_to)
    log.flush()
    return log


def three_epochs(path: Path, *, deleted_to: int = 0) -> PartitionLog:
    """The same after a crash."""
    log = three_epochs_open(path, deleted_to=deleted_to)
    log.release()
    return log


def damage_batch(log: PartitionLog, offset: int, at: int, value: int, size: int = 4) -> None:
    """Have the batch that begins with `offset` say another `value` at byte `at` of its header."""
    for number in range(len(log.segment_base_offsets)):
        path = segment_path(log, number)
        data = bytearray(path.read_bytes())
        for position, header in iterate_headers(bytes(data)):
            if header.base_offset == offset:
                data[position + at : position + at + size] = value.to_bytes(size)
        path.write_bytes(data)


@pytest.mark.parametrize("deleted_to", [3, 7, 15, 19], ids=["in an epoch", "an epoch", "most", "all"])
@pytest.mark.parametrize(
    ("start", "known"),
    [(0, THREE_EPOCHS), (2, ((1, 2), (2, 7), (4, 13))), (9, ((2, 9), (4, 13)))],
)
def test_records_that_a_crash_brings_back_have_their_epochs(
    tmp_path: Path, deleted_to: int, start: int, known: tuple[tuple[int, int], ...]
) -> None:
    """Of what was deleted the epochs' file says nothing any more, but the checkpoint of the log's start is older. Such
    a log could follow nobody from then on where it lost its end up to there.
    """
    three_epochs(tmp_path, deleted_to=deleted_to)
    again = open_log(tmp_path, recovery_point=19, log_start_offset=start)
    if deleted_to <= start:
        known = tuple(each for each in known if each[1] >= start)
    assert again.epochs.entries == known
    again.truncate_to(max(deleted_to, start + 1))
    assert again.last_epoch >= 1


@pytest.mark.parametrize("clean", [False, True])
def test_a_lost_file_of_epochs_is_read_from_the_batches(tmp_path: Path, clean: bool) -> None:
    Path(three_epochs(tmp_path).epochs.path).unlink()
    again = open_log(tmp_path, recovery_point=19, clean=clean)
    assert again.epochs.entries == ((1, 0), (2, 7), (4, 13))


def test_where_all_epochs_are_known_no_batch_is_read_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_epochs(tmp_path, deleted_to=9)
    monkeypatch.setattr(first_epochs, "_epochs", lambda *_: pytest.fail("it knows them"))
    assert open_log(tmp_path, recovery_point=19, log_start_offset=9).epochs.entries == ((2, 9), (4, 13))


def test_after_a_proper_stop_no_batch_is_read_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may begin before its first batch."""
    three_epochs(tmp_path, deleted_to=9)
    monkeypatch.setattr(first_epochs, "_epochs", lambda *_: pytest.fail("what is written is all there is"))
    again = open_log(tmp_path, recovery_point=19, log_start_offset=8, clean=True)
    assert again.epochs.entries == ((2, 9), (4, 13))


@pytest.mark.parametrize(
    ("offset", "damage", "known"),
    [
        (1, 2, THREE_EPOCHS),  # amid those of one epoch: the next one, or the one before, by one bit
        (9, 1, THREE_EPOCHS),
        (4, 0x40000001, THREE_EPOCHS),
        (4, 0, THREE_EPOCHS),
        (4, 0xFFFFFFFF, THREE_EPOCHS),
        (0, 0xFFFFFFFF, THREE_EPOCHS),
        (7, 0, THREE_EPOCHS),  # the first of one
        (7, 1, ((1, 0), (2, 8), (4, 13))),  # which nobody can tell from one of the epoch before
        (6, 0, ((1, 0), (2, 6), (4, 13))),  # the last of one: too early is harmless, too late is not
        (12, 1, ((1, 0), (2, 7), (4, 12))),
    ],
)
def test_what_rises_with_most_batches_counts_where_one_is_damaged(
    tmp_path: Path, offset: int, damage: int, known: tuple[tuple[int, int], ...]
) -> None:
    """No checksum covers the leader epoch."""
    damage_batch(three_epochs(tmp_path, deleted_to=15), offset, 12, damage)
    assert open_log(tmp_path, recovery_point=19, log_start_offset=0).epochs.entries == known


@pytest.mark.parametrize(
    ("offset", "at", "damage", "size", "known"),
    [
        (7, 0, 0, 8, THREE_EPOCHS),
        (5, 16, 1, 1, THREE_EPOCHS),
        (6, 16, 1, 1, ((1, 0), (2, 6), (4, 13))),
        (7, 16, 1, 1, THREE_EPOCHS),
        (4, 8, 2**30, 4, THREE_EPOCHS),
        (6, 8, 2**30, 4, ((1, 0), (2, 6), (4, 13))),
    ],
    ids=["offset", "magic", "last", "first", "length", "last length"],
)
def test_what_cannot_be_read_counts_for_the_next_epoch(
    tmp_path: Path, offset: int, at: int, damage: int, size: int, known: tuple[tuple[int, int], ...]
) -> None:
    damage_batch(three_epochs(tmp_path, deleted_to=15), offset, at, damage, size)
    assert open_log(tmp_path, recovery_point=19, log_start_offset=0).epochs.entries == known


LARGE_SEGMENTS = replace(CONFIG, segment_bytes=100_000)


@pytest.mark.parametrize("has_times", [True, False], ids=["with indexes", "with an index to be built anew"])
@pytest.mark.parametrize(
    "value", [b"x" * 150, b"".join(number.to_bytes(4) for number in range(38))], ids=["text", "numbers"]
)
def test_a_damaged_length_does_not_hide_what_comes_behind_it(
    tmp_path: Path, value: bytes, has_times: bool
) -> None:
    """After a proper stop only the end is looked at, and nothing is known that the doubt could count for. What is read
    in a value as a header may look like one.
    """
    log = open_log(tmp_path, config=LARGE_SEGMENTS)
    for count, epoch in ((7, 1), (6, 2), (6, 4)):
        for _ in range(count):
            log.append_as_leader(encode_batch([(1, None, value, ())]), epoch)
    log.flush()
    log.close()
    Path(log.epochs.path).unlink()
    path = segment_path(log, 0)
    whole, indexes = (
        path.read_bytes(),
        {path.with_suffix(each): path.with_suffix(each).read_bytes() for each in (".index", ".timeindex")},
    )
    late = []
    for position, header in list(iterate_headers(whole))[:18]:
        for bit in range(64, 96):
            damaged = bytearray(whole)
            damaged[position + bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            for index, data in indexes.items():
                index.write_bytes(data)
            if not has_times:
                path.with_suffix(".timeindex").unlink()
            again = open_log(tmp_path, recovery_point=19, clean=True, config=LARGE_SEGMENTS)
            entries = again.epochs.entries
            is_late = any(again.epochs.end_offset_for(asked, 19)[1] > end for asked, end in ((1, 7), (2, 13)))
            late += [(header.base_offset, bit, entries)] if is_late else []
            assert {epoch for epoch, _ in entries} == {1, 2, 4}, "none is lost from sight, either"
            again.release()
            Path(again.epochs.path).unlink(missing_ok=True)
    assert late == []


def test_a_damaged_index_entry_hides_no_epoch(tmp_path: Path) -> None:
    """By it, all offsets stand further on."""
    log = open_log(tmp_path, config=LARGE_SEGMENTS)
    for count, epoch in ((7, 1), (6, 2), (6, 4)):
        fill(log, count, epoch=epoch)
    log.flush()
    log.close()
    Path(log.epochs.path).unlink()
    index = segment_path(log, 0).with_suffix(".index")
    entries = index.read_bytes()
    assert len(entries) >= 5 * 8
    for at in range(0, len(entries), 8):
        index.write_bytes(entries[:at] + bytes([0x80]) + entries[at + 1 :])
        again = open_log(tmp_path, recovery_point=19, clean=True, config=LARGE_SEGMENTS)
        assert again.epochs.entries == ((1, 0), (2, 7), (4, 13))
        again.release()
        Path(again.epochs.path).unlink(missing_ok=True)


@pytest.mark.parametrize("start", [3, 4, 8])
def test_a_log_that_begins_behind_a_damaged_length_has_its_epochs(tmp_path: Path, start: int) -> None:
    log = open_log(tmp_path, config=LARGE_SEGMENTS)
    for count, epoch in ((7, 1), (6, 2), (6, 4)):
        fill(log, count, epoch=epoch)
    log.flush()
    log.close()
    Path(log.epochs.path).unlink()
    damage_batch(log, start - 1, 8, 2**30)
    again = open_log(tmp_path, recovery_point=19, log_start_offset=start, clean=True, config=LARGE_SEGMENTS)
    assert again.epochs.entries[0].start_offset == start
    assert [epoch for epoch, _ in again.epochs.entries] == [1, 2, 4][start > 7 :]


FIELDS = ((0, 8), (8, 12), (12, 16), (16, 17), (23, 27))
"""Of a batch's header: base offset, length, leader epoch, magic, last offset delta."""


@pytest.mark.parametrize("known_from", [14, 15, 18])
@pytest.mark.parametrize("start", [0, 2, 9])
def test_no_bit_of_a_header_has_an_epoch_end_later_than_it_did(
    tmp_path: Path, start: int, known_from: int
) -> None:
    """A follower would keep what it has of it and nobody else. (A first batch of an earlier epoch may be right.)"""
    log = three_epochs_open(tmp_path)
    ends = {asked: end for asked, end in ((1, 7), (2, 13), (3, 13)) if end > start}
    late = []
    for number, segment in enumerate(log.segments):
        path = segment_path(log, number)
        whole = path.read_bytes()
        for position, header in iterate_headers(whole):
            if header.base_offset >= known_from:
                continue
            for bit in (bit for field in FIELDS for bit in range(field[0] * 8, field[1] * 8)):
                damaged = bytearray(whole)
                damaged[position + bit // 8] ^= 1 << bit % 8
                path.write_bytes(damaged)
                segment.hints.clear()
                found = LeaderEpochCache(FILES, str(tmp_path / "none"))
                found.assign(4, known_from)
                first_epochs.find_first_epochs(found, log.segments, start, 0)
                late += [
                    (header.base_offset, bit, asked, found.entries)
                    for asked, end in ends.items()
                    if found.end_offset_for(asked, 19)[1] > end
                ]
        path.write_bytes(whole)
    assert late == []


def test_the_copy_of_a_compacted_log_has_gaps(tmp_path: Path) -> None:
    """It was never cleaned itself."""
    log = open_log(tmp_path)
    for offset in (0, 2, 3, 8, 14, 15, 16, 30):
        epoch = 1 if offset < 8 else 2 if offset < 16 else 4
        batch = encode_batch([(1, b"k", b"v" * 150, ())])
        header = parse_header(batch)
        numbered = patched_prefix(header, offset, epoch, header.crc)
        log.append_as_follower(numbered + batch[len(numbered) :])
    log.flush()
    log.release()
    Path(log.epochs.path).unlink()
    again = open_log(tmp_path, recovery_point=log.log_end_offset)
    assert again.epochs.entries == ((1, 0), (2, 4), (4, 16)), "what is missing counts for the next one"


def test_gaps_amid_an_epoch_do_not_part_it() -> None:
    epochs = [(1, 0), (-1, 1), (1, 2), (-7, 3), (1, 4), (-1, 5), (2, 6), (-1, 7), (2, 8)]
    assert first_epochs._runs(epochs) == [EpochRun(1, 0, 3), EpochRun(-1, 5, 1), EpochRun(2, 6, 2)]


@pytest.mark.parametrize("start", [12, 15, 18])
def test_a_single_batch_is_enough(tmp_path: Path, start: int) -> None:
    log = three_epochs_open(tmp_path)
    found = LeaderEpochCache(FILES, str(tmp_path / "none"))
    found.assign(9, start + 1)
    first_epochs.find_first_epochs(found, log.segments, start, 0)
    assert found.entries == ((2 if start == 12 else 4, start), (9, start + 1))


def test_where_segments_overlap_the_next_one_counts(tmp_path: Path) -> None:
    log = three_epochs_open(tmp_path)
    first, second = (segment_path(log, number) for number in (0, 1))
    overlapping = second.read_bytes()
    first.write_bytes(first.read_bytes() + overlapping[: boundaries(overlapping)[1]])
    log.release()
    damage_batch(log, log.segment_base_offsets[1], 12, 9)  # in either
    again = open_log(tmp_path, recovery_point=19, log_start_offset=0)
    assert again.epochs.entries == THREE_EPOCHS


@pytest.mark.parametrize(
    ("runs", "rise"),
    [
        ([], []),
        ([(3, 5, 1)], [(3, 5)]),
        ([(1, 0, 5), (2, 5, 5), (3, 10, 1)], [(1, 0), (2, 5), (3, 10)]),
        ([(0, 0, 5), (9, 5, 1), (2, 6, 5)], [(0, 0), (2, 5)]),
        ([(9, 0, 1), (2, 5, 5)], [(2, 0)]),
        ([(1, 0, 5), (9, 4, 1), (2, 5, 5), (8, 9, 2)], [(1, 0), (2, 4), (8, 9)]),
        ([(1, 0, 3), (5, 3, 1), (1, 4, 2), (6, 6, 1)], [(1, 0), (1, 3), (6, 6)]),
        ([(-1, 0, 1), (1, 1, 1), (-1, 2, 1), (4, 15, 9)], [(1, 0), (4, 2)]),
        ([(1, 0, 5), (3, 5, 1), (2, 6, 1), (4, 7, 20)], [(1, 0), (3, 5), (4, 6)]),
        ([(-1, 0, 9)], []),
        ([(-1, 0, 9), (2, 3, 1)], [(2, 0)]),
    ],
)
def test_the_heaviest_rise(runs: list[tuple[int, int, int]], rise: list[tuple[int, int]]) -> None:
    assert heaviest_rise([EpochRun(*run) for run in runs]) == rise


@pytest.mark.parametrize("clean", [False, True])
def test_what_was_read_from_batches_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """A log that is never written to again would be read at every start."""
    log = three_epochs(tmp_path)
    Path(log.epochs.path).unlink()
    open_log(tmp_path, recovery_point=19, clean=clean).release()
    monkeypatch.setattr(first_epochs, "_epochs", lambda *_: pytest.fail("the file says it"))
    assert open_log(tmp_path, recovery_point=19, clean=clean).epochs.entries == THREE_EPOCHS


def fail_to_write(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(leader_epochs, "write_checkpoint", fail)


def test_no_room_for_their_file_keeps_no_log_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = three_epochs(tmp_path)
    Path(log.epochs.path).unlink()
    with monkeypatch.context() as failing:
        fail_to_write(failing, OSError(errno.ENOSPC, "no room"))
        again = open_log(tmp_path, recovery_point=19)
    assert again.epochs.entries == THREE_EPOCHS
    again.epochs.flush(19)
    assert LeaderEpochCache(FILES, again.directory).entries == THREE_EPOCHS


def test_a_sync_of_their_file_that_failed_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what is on the disk."""
    log = three_epochs(tmp_path)
    Path(log.epochs.path).unlink()
    fail_to_write(monkeypatch, SyncError(errno.EIO, "sync failed"))
    with pytest.raises(KafkaError):
        open_log(tmp_path, recovery_point=19)


def test_what_a_log_knew_before_it_began_elsewhere_does_not_come_back(tmp_path: Path) -> None:
    """Its own last epoch was nobody else's, as after an unclean election, and is higher than its leader's now."""
    log = three_epochs_open(tmp_path)
    log.truncate_fully_and_start_at(1000)
    other = open_log(tmp_path / "other")
    other.truncate_fully_and_start_at(1000)
    fill(other, 3, epoch=3)
    log.append_as_follower(other.read(1000, 10_000))
    recovery_point = log.recovery_checkpoint
    log.release()
    again = open_log(tmp_path, recovery_point=recovery_point, log_start_offset=0)
    assert again.epochs.entries == ((3, 1000),)
    assert again.log_end_offset == 1003


def test_of_a_compacted_log_they_are_not_read(tmp_path: Path) -> None:
    """An epoch's first batch may be gone: the epoch would seem to begin where it does not."""
    three_epochs(tmp_path, deleted_to=9)
    again = open_log(tmp_path, recovery_point=19, first_dirty_offset=0)
    assert again.epochs.entries == ((2, 9), (4, 13))
