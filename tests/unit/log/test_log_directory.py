"""A log directory: identity, lock, checkpoints, clean shutdown, partitions."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.kernel.threads import SystemThreads
from barnabas.log.checkpoints import offset_files
from barnabas.log.checkpoints.checkpoint_file import read_offsets, write_offsets
from barnabas.log.checkpoints.clean_shutdown import CleanShutdown
from barnabas.log.checkpoints.partition_metadata import parse_directory_name, uuid_from_text, uuid_to_text
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.opening import loader
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments import index_file
from barnabas.log.setting_aside import set_aside
from barnabas.records.record import encode_batch

FILES = SystemFiles()
TOPIC_ID = uuid.UUID(int=11)
BATCH = encode_batch([(1, b"k", b"v", ())])


def open_directory(path: Path, cluster: str = "c", node: int = 1) -> LogDirectory:
    return LogDirectory.open(str(path), cluster, node, seeded_environment())


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_directory_that_lacks_a_partition_does_not_say_that_it_has_everything(tmp_path: Path) -> None:
    """The controller would have its node lead by that epoch, and the others drop what they have (KIP-966)."""
    directory = open_directory(tmp_path)
    directory.open_partition("empty", 0, TOPIC_ID, LogConfig())
    directory.open_partition("deleted", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.open_partition("gone", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.delete_partition("deleted", 0)
    directory.close(marker=CleanShutdown(5))
    shutil.rmtree(tmp_path / "empty-0")
    directory = open_directory(tmp_path)
    directory.partitions_on_disk()
    assert directory.closed == CleanShutdown(5), "nothing of it was lost"
    directory.close(marker=CleanShutdown(6))
    shutil.rmtree(tmp_path / "gone-0")
    directory = open_directory(tmp_path)
    directory.partitions_on_disk()
    assert directory.closed == CleanShutdown()
    assert directory.was_clean, "the others need no recovery"
    directory.close(marker=CleanShutdown(7))


def test_a_clean_shutdown_is_believed_once(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_partition("a.b-c", 3, TOPIC_ID, LogConfig())
    assert directory.open_partition("a.b-c", 3, TOPIC_ID, LogConfig()) is log
    for _ in range(5):
        log.append_as_leader(BATCH, 0)
    log.maybe_increment_log_start_offset(2)
    identity = directory.properties
    directory.close({("a.b-c", 3): 4}, marker=CleanShutdown(9))
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 9}
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\na.b-c 3 4\n"
    again = open_directory(tmp_path)
    assert again.was_clean
    assert again.closed == CleanShutdown(9)
    assert again.properties == identity
    assert again.high_watermarks == {("a.b-c", 3): 4}
    assert again.partitions_on_disk() == {("a.b-c", 3): TOPIC_ID}
    reopened = again.open_partition("a.b-c", 3, TOPIC_ID, LogConfig())
    assert (reopened.log_start_offset, reopened.log_end_offset, reopened.recovery_point) == (2, 5, 5)
    assert reopened.recovery_report.segments_checked == 0
    again.abandon()
    crashed = open_directory(tmp_path)
    assert not crashed.was_clean
    assert crashed.closed is None
    recovered = crashed.open_partition("a.b-c", 3, TOPIC_ID, LogConfig())
    assert recovered.recovery_report.segments_checked == 1
    crashed.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"version":0,"brokerEpoch":-1}',
        '{"version":0}',
        '{"brokerEpoch":true}',
        '{"brokerEpoch":"4"}',
        "[]",
        "\xff",
    ],
)
def test_a_marker_without_an_epoch_speaks_of_no_process(tmp_path: Path, text: str) -> None:
    open_directory(tmp_path).close()
    (tmp_path / ".kafka_cleanshutdown").write_text(text, encoding="latin-1")
    again = open_directory(tmp_path)
    assert again.was_clean
    assert again.closed == CleanShutdown()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again.abandon()


def test_what_the_listing_read_is_asked_for_once_and_not_believed_of_others(tmp_path: Path) -> None:
    first = open_directory(tmp_path)
    for partition in range(3):
        first.open_partition("a", partition, TOPIC_ID, LogConfig())
    first.close()
    directory = open_directory(tmp_path)
    assert len(directory.partitions_on_disk()) == 3
    identity = tmp_path / "a-0" / "partition.metadata"
    identity.rename(tmp_path / "kept")
    directory.open_partition("a", 0, TOPIC_ID, LogConfig())
    assert not identity.exists()  # it was not looked for
    with pytest.raises(LogStoreError, match="belongs to topic id"):
        directory.open_partition("a", 1, uuid.UUID(int=12), LogConfig())
    directory.delete_partition("a", 2)
    directory.open_partition("a", 2, uuid.UUID(int=12), LogConfig())
    text = (tmp_path / "a-2" / "partition.metadata").read_text()
    assert text.endswith(uuid_to_text(uuid.UUID(int=12)))
    directory.close_partition("a", 0)
    directory.open_partition("a", 0, TOPIC_ID, LogConfig())
    assert identity.exists()  # what was closed meanwhile is looked at again
    directory.abandon()


def test_logs_are_closed_several_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dataclasses.replace(seeded_environment(), threads=SystemThreads())
    directory = LogDirectory.open(str(tmp_path), "c", 1, environment)
    for partition in range(4):
        directory.open_partition("a", partition, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    both_are_there = threading.Barrier(2, timeout=30)
    close = PartitionLog.close

    def meet_and_close(log: PartitionLog) -> None:
        both_are_there.wait()
        close(log)

    monkeypatch.setattr(PartitionLog, "close", meet_and_close)
    directory.close()
    again = open_directory(tmp_path)
    assert again.was_clean
    assert again.recovery_points == {("a", partition): 1 for partition in range(4)}
    again.abandon()


def test_without_a_thread_to_close_logs_in_the_next_start_recovers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dataclasses.replace(seeded_environment(), threads=SystemThreads())
    directory = LogDirectory.open(str(tmp_path), "c", 1, environment)
    directory.open_partition("a", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(KafkaError, match="cannot start a thread"):
            directory.close()
    again = open_directory(tmp_path)
    assert not again.was_clean
    assert again.open_partition("a", 0, TOPIC_ID, LogConfig()).log_end_offset == 1
    again.abandon()


def test_an_empty_log_that_crashed_is_closed_without_writing_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = open_directory(tmp_path)
    crashed.open_partition("a", 0, TOPIC_ID, LogConfig())
    crashed.abandon()
    directory = open_directory(tmp_path)
    directory.open_partition("a", 0, TOPIC_ID, LogConfig())
    written: list[str] = []
    monkeypatch.setattr(index_file, "write_at", lambda _, path, *__: written.append(path))
    directory.close()
    assert written == []


@pytest.mark.parametrize(("cluster", "node"), [("other", 1), ("c", 2)])
def test_a_directory_of_others_is_not_touched(tmp_path: Path, cluster: str, node: int) -> None:
    open_directory(tmp_path).close()
    before = snapshot(tmp_path)
    with pytest.raises(LogStoreError, match="belongs to"):
        open_directory(tmp_path, cluster, node)
    assert snapshot(tmp_path) == before
    assert open_directory(tmp_path).was_clean


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_a_broken_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    open_directory(tmp_path).close()
    (tmp_path / name).write_bytes(b"nonsense\nnonsense\nnonsense\n")
    before = snapshot(tmp_path)
    with pytest.raises(LogStoreError, match=name):
        open_directory(tmp_path)
    assert snapshot(tmp_path) == before


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    first = open_directory(tmp_path)
    with pytest.raises(LogStoreError, match="in use by another process"):
        open_directory(tmp_path)
    first.close()
    open_directory(tmp_path).close()


def test_deleting_a_partition(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.open_partition("t", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.write_checkpoints({("t", 0): 1})
    directory.delete_partition("t", 0)
    directory.delete_partition("t", 1)
    (tmp_path / "t-9.0123-delete").mkdir()
    assert directory.partitions_on_disk() == {}
    fresh = directory.open_partition("t", 0, uuid.UUID(int=12), LogConfig())
    assert fresh.log_end_offset == 0
    directory.close()
    assert read_offsets(FILES, str(tmp_path / "replication-offset-checkpoint")) == {}
    open_directory(tmp_path).close()
    assert not (tmp_path / "t-9.0123-delete").exists()


def test_a_partition_that_is_not_open_keeps_its_checkpoint(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for partition in (0, 1):
        directory.open_partition("t", partition, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.close({("t", 0): 1, ("t", 1): 1})
    again = open_directory(tmp_path)
    again.open_partition("t", 0, TOPIC_ID, LogConfig())
    again.close({("t", 0): 1})
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert read_offsets(FILES, str(tmp_path / name)) == {("t", 0): 1, ("t", 1): 1}


def test_a_partition_closed_alone_opens_again_without_recovery(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(BATCH, 0)
    directory.close_partition("t", 0)
    again = directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    assert again is not log
    assert again.log_end_offset == again.recovery_point == 1
    assert again.recovery_report.segments_checked == 0
    again.release()
    del directory.logs[("t", 0)]
    recovered = directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    assert recovered.recovery_report.segments_checked == 1
    directory.close()


def test_a_log_that_cannot_be_closed_leaves_no_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    logs = [directory.open_partition("t", partition, TOPIC_ID, LogConfig()) for partition in (0, 1)]
    for log in logs:
        log.append_as_leader(BATCH, 0)

    def refuse(*_: object) -> int:
        raise KafkaError(ErrorCode.kafka_storage_error, "the disk is gone")

    monkeypatch.setattr(logs[0]._flusher, "flush_to", refuse)
    with pytest.raises(KafkaError):
        directory.close()
    assert logs[1].recovery_point == 1
    again = open_directory(tmp_path)
    assert not again.was_clean
    assert again.open_partition("t", 0, TOPIC_ID, LogConfig()).log_end_offset == 1
    again.abandon()


def test_names_and_ids_are_kafkas() -> None:
    assert parse_directory_name("my-topic-12") == ("my-topic", 12)
    assert parse_directory_name("t-0.abc-delete") is None
    assert uuid_to_text(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == uuid.UUID(int=1)


def refuse_checkpoints(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_mark_while_a_partition_could_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = open_directory(tmp_path)
    for partition in (0, 1):
        crashed.open_partition("t", partition, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    crashed.abandon()
    directory = open_directory(tmp_path)
    directory.open_partition("t", 1, TOPIC_ID, LogConfig())

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(loader, "load", fail)
        with pytest.raises(KafkaError, match="Too many"):
            directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    with pytest.raises(KafkaError, match="t-0 was not opened and closed properly"):
        directory.close()
    again = open_directory(tmp_path)
    assert again.open_partition("t", 0, TOPIC_ID, LogConfig()).recovery_report.segments_checked == 1
    again.open_partition("t", 1, TOPIC_ID, LogConfig())
    again.close()
    assert open_directory(tmp_path).was_clean


def test_no_mark_after_a_partition_was_closed_improperly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(BATCH, 0)

    def refuse(*_: object) -> int:
        raise KafkaError(ErrorCode.kafka_storage_error, "the disk is gone")

    monkeypatch.setattr(log._flusher, "flush_to", refuse)
    with pytest.raises(KafkaError, match="is gone"):
        directory.close_partition("t", 0)
    with pytest.raises(KafkaError, match="not opened and closed"):
        directory.close()
    assert not open_directory(tmp_path).was_clean


def test_a_deletion_frees_a_full_disk_and_its_checkpoints_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory(tmp_path)
    directory.open_partition("t", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.logs["t", 0].flush()
    directory.write_checkpoints({("t", 0): 1})
    points = str(tmp_path / "recovery-point-offset-checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(offset_files, "write_offsets", refuse_checkpoints)
        directory.delete_partition("t", 0)
        assert [list(left.iterdir()) for left in tmp_path.glob("t-0*")] == [[]]
        # While the file vouches for what was there before, nothing new is there to be vouched for.
        with pytest.raises(KafkaError, match="No space"):
            directory.open_partition("t", 0, uuid.UUID(int=12), LogConfig())
    assert read_offsets(FILES, points) == {("t", 0): 0}, "its one batch is there, its indexes are not"
    directory.write_checkpoints()
    assert read_offsets(FILES, points) == {}
    assert list(tmp_path.glob("t-0*")) == []
    directory.open_partition("t", 0, uuid.UUID(int=12), LogConfig())
    directory.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_recovery_point_past_the_log_s_end_comes_down_at_once(tmp_path: Path, is_clean: bool) -> None:
    directory = open_directory(tmp_path)
    directory.open_partition("t", 0, TOPIC_ID, LogConfig()).append_as_leader(BATCH, 0)
    directory.close() if is_clean else directory.abandon()
    points = str(tmp_path / "recovery-point-offset-checkpoint")
    write_offsets(FILES, points, {("t", 0): 5})
    again = open_directory(tmp_path)
    assert again.open_partition("t", 0, TOPIC_ID, LogConfig()).recovery_point <= 1
    assert read_offsets(FILES, points)["t", 0] <= 1
    again.abandon()


def test_checkpoints_of_a_partition_that_is_not_there_are_not_inherited(tmp_path: Path) -> None:
    open_directory(tmp_path).abandon()
    points = str(tmp_path / "recovery-point-offset-checkpoint")
    write_offsets(FILES, points, {("t", 0): 5})
    directory = open_directory(tmp_path)
    directory.partitions_on_disk()
    directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    assert read_offsets(FILES, points).get(("t", 0), 0) == 0
    directory.abandon()


@pytest.mark.parametrize("removal", ["delete", "set aside"])
def test_a_log_is_not_removed_under_its_upkeep(tmp_path: Path, removal: str) -> None:
    directory = open_directory(tmp_path)
    log = directory.open_partition("t", 0, TOPIC_ID, LogConfig())
    log.append_as_leader(BATCH, 0)
    with ThreadPoolExecutor() as threads:
        with log._locks.upkeep:  # retention, say, in its own thread
            if removal == "delete":
                removing: Future[object] = threads.submit(directory.delete_partition, "t", 0)
            else:
                removing = threads.submit(set_aside, directory, "t", StrayKey(TOPIC_ID, 0), 0)
            with pytest.raises(TimeoutError):
                removing.result(0.05)
            assert (tmp_path / "t-0").is_dir()
        removing.result()
    directory.open_partition("t", 0, uuid.UUID(int=12), LogConfig()).append_as_leader(BATCH, 0)
    for work in (log.flush, log.flush_finished, lambda: log.delete_old_segments(1)):
        with pytest.raises(KafkaError, match="is closed"):
            work()
    directory.close()
