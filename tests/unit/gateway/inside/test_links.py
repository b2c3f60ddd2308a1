"""The gateway's connections follow the metadata: nobody waits on one to a node that was fenced or has moved, and to
coordinators that are gone there is none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from gateway_harness import coordinator_record, node_record, topic_records

from barnabas.gateway.inside.links import Links
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import Unreachable
from barnabas.links.network import Network
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import AppendRequest
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
    coordinator_key,
)
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.network import GrpcNetwork


class Metadata:
    """An image that tests change, told to who asked for it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._callbacks: list[Callable[[MetadataImage, MetadataImage], None]] = []

    def on_change(self, callback: Callable[[MetadataImage, MetadataImage], None]) -> None:
        self._callbacks.append(callback)

    def apply(self, *records: MetadataRecord) -> None:
        old, self.image = self.image, self.image.apply(list(records), self.image.revision + 1)
        for callback in self._callbacks:
            callback(old, self.image)


def node(address: str, *, fenced: bool = False) -> MetadataRecord:
    record = node_record(1, fenced=fenced)
    record.node.address = address
    return record


@pytest.fixture
def silent_address(tmp_path: Path) -> Iterator[str]:
    """Connections are made there and nobody ever reads them, as the kernel does it for a frozen process."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "silent"))
        listening.listen()
        yield f"unix:{tmp_path}/silent"


async def test_what_waits_for_a_node_fails_when_it_is_fenced(silent_address: str) -> None:
    metadata = Metadata()
    links = Links(cast(MetadataSubscription, cast(Any, metadata)), GrpcNetwork(), StorageStreamCounts())
    metadata.apply(node(silent_address))
    connection = links.storage(1)
    assert connection is not None
    waiting = connection.appends.send(AppendRequest())
    metadata.apply(node(silent_address, fenced=True))
    assert links.storage(1) is None
    async with asyncio.timeout(10):
        with pytest.raises(Unreachable):
            await waiting
    metadata.apply(node(silent_address))
    assert links.storage(1) not in (None, connection), "when it is back, it gets a new connection"
    await links.close()


class Coordinator:
    """A link that knows whether it was closed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Coordinators:
    """A network in which there are coordinators alone."""

    def connect_coordinator(self, address: str) -> Coordinator:
        return Coordinator(f"groups of {address}")

    def connect_transactions(self, address: str) -> Coordinator:
        return Coordinator(f"transactions of {address}")


async def test_links_to_coordinators_are_kept_while_they_are_there() -> None:
    metadata = Metadata()
    network = cast(Network, cast(Any, Coordinators()))
    links = Links(cast(MetadataSubscription, cast(Any, metadata)), network, StorageStreamCounts())
    with pytest.raises(KafkaError) as refused:
        links.transactions_for("pay")
    assert refused.value.code is ErrorCode.coordinator_not_available
    metadata.apply(
        coordinator_record("c1"),
        *topic_records(TRANSACTION_STATE_TOPIC, [1], coordinator_id="c1"),
        *topic_records(GROUP_METADATA_TOPIC, [1], coordinator_id="c1"),
    )
    found: list[Any] = [links.transactions_for("pay"), links.coordinator_for_group("readers")]
    assert [link.address for link in found] == ["transactions of c1", "groups of c1"]
    assert links.transactions_for("bill") is found[0]
    metadata.apply(coordinator_record("c2"))
    kept: Any = links.transactions_at("c2")
    metadata.apply(MetadataRecord(key=coordinator_key("c1")))
    with pytest.raises(KafkaError):
        links.transactions_for("pay")
    await links.close()
    assert [link.is_closed for link in (*found, kept)] == [True, True, True]
