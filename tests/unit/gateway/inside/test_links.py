"""The gateway's connections follow the metadata: nobody waits on one to a node that was fenced or has moved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from gateway_harness import node_record

from barnabas.gateway.inside.links import Links
from barnabas.links.errors import Unreachable
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import AppendRequest
from barnabas.metadata.image import MetadataImage
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
