"""A metadata store restored from an older backup, as an operator does it: stop all, put the backup back, start all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from raw_client import INIT_PRODUCER_ID, METADATA, RawConnection
from test_kill_and_restart import (
    PARTITIONS,
    WAIT_SECONDS,
    SteadyProducer,
    end_offset,
    make_topic,
    read_all,
)
from test_up_with_etcd import Etcd

pytestmark = pytest.mark.integration

ELECTIONS = 4
"""Restarts after the backup, each of which is an election for every partition."""


class SqliteFile:
    """The store that is part of the cluster's own data."""

    flags: tuple[str, ...] = ()

    def folder(self, cluster: Any) -> Path:
        return Path(cluster.data_dir) / "controller"

    def stop(self) -> None:
        """It ended with the cluster."""

    def start(self) -> None:
        """It starts with the cluster."""


class EtcdMember:
    """A store of its own, stopped while its folder is copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "etcd"
        self._server = Etcd(folder)
        self._server.start()
        self.flags = ("--etcd", self._server.url)

    def folder(self, _: Any) -> Path:
        return self._folder

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


@pytest.fixture(params=["sqlite", "etcd"])
def metadata_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteFile | EtcdMember]:
    store = SqliteFile() if request.param == "sqlite" else EtcdMember(tmp_path)
    yield store
    store.stop()


def producer_ids(cluster: Any, count: int) -> list[int]:
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    with RawConnection(cluster.port) as connection:
        return [connection.ask(INIT_PRODUCER_ID, 1, body).producer_id for _ in range(count)]


def leader_epochs(cluster: Any, topic: str) -> dict[int, int]:
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    with RawConnection(cluster.port) as connection:
        (known,) = connection.ask(METADATA, 8, body).topics
    return {partition.partition_index: partition.leader_epoch for partition in known.partitions}


def consume_and_commit(cluster: Any, topic: str) -> list[int]:
    """What a group reads from where it has committed to the end, and commits."""
    group = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "restored",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    ends = {partition: end_offset(group, topic, partition) for partition in range(PARTITIONS)}
    group.subscribe([topic])
    values, positions = [], dict.fromkeys(range(PARTITIONS), -1)
    while any(
        position < end - 1 for position, end in zip(positions.values(), ends.values(), strict=True) if end
    ):
        message = group.poll(WAIT_SECONDS)
        assert message is not None, f"nothing more comes at {positions} of {ends}"
        assert message.error() is None, message.error()
        values.append(int(message.value()))
        positions[message.partition()] = message.offset()
    group.commit(asynchronous=False)
    group.close()
    return values


def test_all_goes_on_with_an_older_backup_of_the_metadata(
    make_cluster: Callable[..., Any], metadata_store: SqliteFile | EtcdMember, tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=2, flags=metadata_store.flags)
    folder, backup = metadata_store.folder(cluster), tmp_path / "backup"
    topic = make_topic(cluster, "events")
    used = producer_ids(cluster, 3)
    read: list[int] = []
    acknowledged = 0

    def produce_and_read() -> None:
        nonlocal acknowledged
        with SteadyProducer(cluster.bootstrap, topic) as producer:
            producer.wait_for_more(200)
        assert producer.failed == []
        acknowledged += len(producer.acknowledged)
        read.extend(consume_and_commit(cluster, topic))

    produce_and_read()
    assert cluster.stop() == 0
    metadata_store.stop()
    shutil.copytree(folder, backup)
    metadata_store.start()
    cluster.start()
    for _ in range(ELECTIONS):
        used += producer_ids(cluster, 3)
        produce_and_read()
        cluster.restart()
    epochs = leader_epochs(cluster, topic)
    assert cluster.stop() == 0
    metadata_store.stop()
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    metadata_store.start()
    begin = cluster.log_size()
    cluster.start()

    assert "newer leader epochs than the metadata" in "\n".join(cluster.log_lines(begin))
    with SteadyProducer(cluster.bootstrap, topic) as producer:
        producer.wait_for_more(200)
    again = leader_epochs(cluster, topic)
    assert all(again[partition] > epochs[partition] for partition in epochs), (epochs, again)
    values = read_all(cluster.bootstrap, topic)
    assert sum(map(len, values)) == acknowledged + len(producer.acknowledged)
    assert producer.failed == []
    following = consume_and_commit(cluster, topic)
    assert sorted(following) == sorted(producer.acknowledged), "the group goes on where it had committed"
    assert len(read) == acknowledged
    assert not set(producer_ids(cluster, 3)) & set(used)
    begin = cluster.log_size()
    cluster.restart()
    assert "newer leader epochs" not in "\n".join(cluster.log_lines(begin)), "once is enough"
