"""The gateway's connections follow the metadata: nobody waits on one to a node that was fenced or has moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from gateway_harness import node_record

from barnabas.gateway.links import Links
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.coalesced import Unreachable
from barnabas.rpc.v1.metadata_pb2 import MetadataRecord
from barnabas.rpc.v1.storage_pb2 import AppendRequest


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
async def silent_address(tmp_path: Path) -> AsyncIterator[str]:
    """Somebody accepts connections there and never says a word, as the kernel does for a frozen process."""
    server = await asyncio.start_unix_server(lambda _reader, _writer: None, tmp_path / "silent")
    yield f"unix:{tmp_path}/silent"
    server.close()


async def test_what_waits_for_a_node_fails_when_it_is_fenced(silent_address: str) -> None:
    metadata = Metadata()
    links = Links(cast(MetadataSubscription, cast(Any, metadata)))
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
