"""The two coalesced streams to one storage node, ready to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from barnabas.rpc.coalesced import CoalescedStream
from barnabas.rpc.connections import open_channel
from barnabas.rpc.v1.storage_pb2 import (
    AppendFrame,
    AppendRequest,
    AppendResult,
    FetchFrame,
    FetchRequest,
    FetchResult,
)
from barnabas.rpc.v1.storage_pb2_grpc import StorageStub

if TYPE_CHECKING:
    from barnabas.rpc.v1.storage_pb2_grpc import StorageAsyncStub


class StorageConnection:
    """Owns the channels and streams to one storage node.

    Appends and fetches have a connection each, so that neither waits behind the other's flow control. `stub` is
    for the unary look-ups and shares the fetches' connection.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._append_channel = open_channel(address)
        self._fetch_channel = open_channel(address)
        append_stub: StorageAsyncStub = StorageStub(self._append_channel)
        self.stub: StorageAsyncStub = StorageStub(self._fetch_channel)
        self.appends: CoalescedStream[AppendRequest, AppendResult] = CoalescedStream(
            lambda: append_stub.Append(None),
            lambda requests, _: AppendFrame(requests=requests),
            lambda frame: frame.results,
            name=f"appends to {address}",
        )
        self.fetches: CoalescedStream[FetchRequest, FetchResult] = CoalescedStream(
            lambda: self.stub.Fetch(None),
            lambda requests, hurried: FetchFrame(requests=requests, hurry=hurried),
            lambda frame: frame.results,
            name=f"fetches from {address}",
        )

    async def close(self) -> None:
        await self.appends.close()
        await self.fetches.close()
        for channel in (self._append_channel, self._fetch_channel):
            await _close(channel)


async def _close(channel: grpc.aio.Channel) -> None:
    await channel.close(grace=None)
