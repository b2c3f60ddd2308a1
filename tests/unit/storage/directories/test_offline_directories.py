"""A log directory whose disk fails at start is offline, and so is what may be in it; the others go on."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from storage_harness import CLUSTER_ID, NODE_ID, StorageHarness, batch, run_node, topic_records

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.clean_shutdown import CleanShutdown
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError
from barnabas.messages.storage_pb2 import DescribeLogDirsRequest
from barnabas.storage.directories.cluster_id import find_cluster_id
from barnabas.storage.directories.log_directories import LogDirectories


@contextmanager
def failing_disk(*directories: Path, call: str = "list_directories", at: int = 1) -> Iterator[None]:
    """From the call of the number given on, each of that kind in the directories fails."""
    real: Callable[..., Any] = getattr(SystemFiles(), call)
    counts = dict.fromkeys(map(str, directories), 0)

    def fail(path: str, *arguments: Any) -> Any:
        for directory in counts:
            if path == directory or path.startswith(f"{directory}/"):
                counts[directory] += 1
                if counts[directory] >= at:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemFiles, call, staticmethod(fail))
        yield


async def code_of(node: StorageHarness, topic: Any, index: int = 0) -> ErrorCode:
    return ErrorCode((await node.append(topic, batch(b"b"), index=index)).error_code)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.partition(":")[0] for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("call", "at"),
    [("makedirs", 1), ("open", 1), *(("list_directories", at) for at in (1, 2, 3)), ("listdir", 1)],
    ids=str,
)
async def test_what_may_be_in_it_is_offline_and_the_rest_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str, at: int
) -> None:
    here, gone, socket = tmp_path / "here", tmp_path / "gone", tmp_path / "s"
    async with run_node(here, socket, [gone]) as node:
        topic = await node.create_topic(partitions=4)
        for index in range(4):
            assert (await node.append(topic, batch(b"a"), index=index)).error_code == 0
    lost = sorted(int(each.name.rpartition("-")[2]) for each in gone.glob("events-*"))
    kept = sorted({0, 1, 2, 3} - set(lost))
    assert len(lost) == len(kept) == 2

    with failing_disk(gone, call=call, at=at):
        async with run_node(here, socket, [gone]) as node:
            node.snapshot(*topic_records("events", topic, 4))
            await node.until_open()
            for index in kept:
                assert (await node.append(topic, batch(b"b"), index=index)).base_offset == 1
            for index in lost:
                assert await code_of(node, topic, index) == ErrorCode.kafka_storage_error
            assert errors(caplog) == ["a log directory is offline until the next start"]
            later = await node.create_topic("later", partitions=2)
            assert await code_of(node, later, 1) == ErrorCode.none, "it cannot be there"
            node.apply(*topic_records("events", topic, 5))
            await node.until_open()
            assert await code_of(node, topic, 4) == ErrorCode.kafka_storage_error, (
                "it may have had more before"
            )
            described = await node.connection.DescribeLogDirs(DescribeLogDirsRequest(all_partitions=True))
            assert {each.path: each.error_code for each in described.log_dirs} == {
                str(here): 0,
                str(gone): ErrorCode.kafka_storage_error,
            }
    assert not [each for index in lost for each in here.glob(f"events-{index}")], (
        "nothing hides what is there"
    )

    async with run_node(here, socket, [gone]) as node:
        node.apply(*topic_records("events", topic, 4), *topic_records("later", later, 2))
        await node.until_open()
        ends = {index: node.replica(topic, index).log.log_end_offset for index in range(4)}  # type: ignore[union-attr]
        assert ends == dict.fromkeys(kept, 2) | dict.fromkeys(lost, 1)


def test_a_node_without_any_directory_does_not_start(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]

    def open_all() -> LogDirectories:
        names = [str(each) for each in paths]
        return LogDirectories.open(
            names, CLUSTER_ID, NODE_ID, seeded_environment(), producer_id_expiration_ms=1
        )

    open_all().close({})
    with (
        failing_disk(*paths),
        pytest.raises(LogStoreError, match=f"no log directory can be used: {paths[0]}.*"),
    ):
        open_all()
    open_all().close({})  # and their locks are free


def test_the_process_before_is_known_where_all_directories_agree(tmp_path: Path) -> None:
    def open_all(*names: str) -> LogDirectories:
        paths = [str(tmp_path / name) for name in names]
        return LogDirectories.open(
            paths, CLUSTER_ID, NODE_ID, seeded_environment(), producer_id_expiration_ms=1
        )

    first = open_all("a", "b")
    assert first.previous_broker_epoch is None, "it is new"
    ids = first.ids
    assert ids == sorted(ids)
    assert len(set(ids)) == 2
    first.close({}, broker_epoch=4)

    second = open_all("a", "b")
    assert (second.previous_broker_epoch, second.ids) == (4, ids)
    second.abandon()
    crashed = open_all("a", "b")
    assert crashed.previous_broker_epoch is None
    crashed.close({})
    unknown = open_all("a", "b")
    assert unknown.previous_broker_epoch is None, "it was never registered"
    unknown.close({}, broker_epoch=5)

    with failing_disk(tmp_path / "b", call="open"):
        without = open_all("a", "b")
        assert without.previous_broker_epoch is None
        (left,) = without.ids
        assert left in ids
        without.close({}, broker_epoch=6)
    apart = open_all("a", "b")
    assert apart.previous_broker_epoch is None, "one says 6, the other 5"
    apart.close({}, broker_epoch=7)

    wider = open_all("a", "b", "c")
    assert wider.previous_broker_epoch is None, "nobody knows what is missing there"
    assert len(wider.ids) == 3
    wider.close({}, broker_epoch=8)


def test_what_held_nothing_when_the_node_stopped_is_known_at_the_next_start(tmp_path: Path) -> None:
    def open_all(*names: str) -> LogDirectories:
        paths = [str(tmp_path / name) for name in names]
        return LogDirectories.open(
            paths, CLUSTER_ID, NODE_ID, seeded_environment(), producer_id_expiration_ms=1
        )

    def id_of(directories: LogDirectories, name: str) -> uuid.UUID:
        return directories.at(str(tmp_path / name)).properties.directory_id

    first = open_all("a", "b", "c")
    ids = {name: id_of(first, name) for name in "abc"}
    first.claim("t", 0, uuid.UUID(int=1), is_new=True, preferred=str(tmp_path / "a"))
    marker = first.marker(4, {str(tmp_path / "b")})
    assert marker == CleanShutdown(4, frozenset({ids["c"]})), "something may have come to b yet"
    first.close({}, broker_epoch=4)

    second = open_all("a", "c")
    assert second.previous == CleanShutdown(4, frozenset({ids["b"], ids["c"]}))
    assert second.marker(5, ()).empty_log_directories == {ids["a"], ids["b"], ids["c"]}, (
        "it was never registered, perhaps"
    )
    second.claim("t", 0, uuid.UUID(int=1), is_new=True, preferred=str(tmp_path / "c"))
    second.abandon()
    third = open_all("a")
    assert third.previous == CleanShutdown(), "who was killed says nothing"
    third.close({})


@pytest.mark.parametrize("what", ["stray", "missing", "left"])
def test_a_directory_that_may_have_something_is_not_called_empty(tmp_path: Path, what: str) -> None:
    def open_all(*names: str) -> LogDirectories:
        paths = [str(tmp_path / name) for name in names]
        return LogDirectories.open(
            paths, CLUSTER_ID, NODE_ID, seeded_environment(), producer_id_expiration_ms=1
        )

    first = open_all("a", "b")
    home = first.at(str(tmp_path / "b"))
    topic_id = uuid.UUID(int=1)
    first.claim("t", 0, topic_id, is_new=True, preferred=home.path)
    log, _ = first.open_partition(home.path, "t", 0, topic_id, LogConfig())
    log.append_as_leader(batch(b"v"), 0)
    log.flush()
    assert home.properties.directory_id not in first.marker(1, ()).empty_log_directories
    first.close({("t", 0): 1})
    place = tmp_path / "b" / "t-0"
    if what == "stray":
        place.rename(tmp_path / "b" / f"t-0.{topic_id.hex}-stray")
    elif what == "missing":
        place.rename(tmp_path / "elsewhere")
    else:
        place.rename(tmp_path / "b" / f"t-0.{uuid.uuid4().hex}.0-moving")
        (tmp_path / "c").write_text("no directory")
    second = open_all("a", "b", *(["c"] if what == "left" else []))
    assert (
        second.at(str(tmp_path / "a")).properties.directory_id in second.marker(1, ()).empty_log_directories
    )
    assert home.properties.directory_id not in second.marker(1, ()).empty_log_directories
    second.abandon()


def test_the_cluster_is_known_from_any_directory_that_can_be_read(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    LogDirectories.open(paths, CLUSTER_ID, NODE_ID, seeded_environment(), producer_id_expiration_ms=1).close(
        {}
    )
    with failing_disk(tmp_path / "a", call="open"):
        assert find_cluster_id(SystemFiles(), paths) == CLUSTER_ID
    with failing_disk(tmp_path / "a", tmp_path / "b", call="open"), pytest.raises(LogStoreError):
        find_cluster_id(SystemFiles(), paths)
    with failing_disk(tmp_path / "a", call="open"):
        assert find_cluster_id(SystemFiles(), [paths[0], str(tmp_path / "new")]) == ""
