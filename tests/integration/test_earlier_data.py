"""Data directories that earlier versions left behind, stopped or killed, are read in place and nothing is lost."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from running_cluster import Cluster

pytestmark = pytest.mark.integration

ARCHIVES: Final = sorted((Path(__file__).parent / "earlier_data").glob("*.tar.xz"))

OLD_OFFSETS_STAY: Final = ("--override", "offsets.retention.minutes=2147483647")
"""The committed offsets are as old as the archive."""


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def upgraded(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of this version on the data of an earlier one; `write.py` beside the archives says what is in it."""
    cluster = Cluster(nodes=2, flags=OLD_OFFSETS_STAY)
    try:
        with tarfile.open(request.param) as archive:
            if hasattr(tarfile, "data_filter"):  # not in every Python 3.11
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(cluster.data_dir)
        yield cluster.start()
    finally:
        cluster.close()


def test_nothing_is_lost(upgraded: Cluster) -> None:
    orders = upgraded.records("orders")
    assert Counter((record.key, record.value) for record in orders) == Counter(
        (str(number).encode(), f"order {number}".encode()) for number in range(1000)
    )
    for partition in range(4):
        offsets = [record.offset for record in orders if record.partition == partition]
        assert offsets == list(range(250))
    newest = {record.key: record.value for record in upgraded.records("prices")}
    assert newest == {str(key).encode(): str(990 + key).encode() for key in range(10)}
    segmented = upgraded.records("segmented")
    assert [record.value for record in segmented] == [
        f"{number:05d}".encode() * 2000 for number in range(300)
    ]
    assert "deleted" not in upgraded_topics(upgraded)


def upgraded_topics(cluster: Cluster) -> set[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "looks"})
    topics = set(consumer.list_topics(timeout=10).topics)
    consumer.close()
    return topics


def test_the_group_goes_on_where_it_was_and_producers_where_the_log_ends(upgraded: Cluster) -> None:
    bootstrap = {"bootstrap.servers": upgraded.bootstrap_servers}
    consumer = Consumer({**bootstrap, "group.id": "readers", "enable.auto.commit": False})
    partitions = [TopicPartition("orders", index) for index in range(4)]
    committed = consumer.committed(partitions, timeout=20)
    assert sum(partition.offset for partition in committed if partition.offset > 0) == 600
    consumer.commit(offsets=[TopicPartition("orders", 0, 250)], asynchronous=False)
    consumer.close()
    placed: list[int] = []
    producer = Producer({**bootstrap, "enable.idempotence": True})
    producer.produce(
        "orders", b"next", partition=0, on_delivery=lambda _, message: placed.append(message.offset())
    )
    producer.flush(20)
    assert placed == [250]
    upgraded.stop()
    upgraded.start()
    assert len(upgraded.records("orders")) == 1001
