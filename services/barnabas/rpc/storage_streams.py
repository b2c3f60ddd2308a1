"""The link to one storage node: its two coalesced streams, ready to use, and its calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.links.limits import UNANSWERED_BYTES_MAX
from barnabas.links.storage_messages import AppendBatches, FetchedResult, ReplicaFetched
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.storage_pb2 import (
    DESCRIPTOR,
    AppendRequest,
    AppendResult,
    AppendResultFrame,
    FetchFrame,
    FetchRequest,
    ReplicaPositionsFrame,
)
from barnabas.rpc.append_frames import encode_append_frame
from barnabas.rpc.calls import ServiceCalls, method_path, streamed
from barnabas.rpc.coalesced import CoalescedStream
from barnabas.rpc.connections import open_channel
from barnabas.rpc.fetch_frames import decode_fetch_results
from barnabas.rpc.replication_frames import decode_replica_records

if TYPE_CHECKING:
    import grpc.aio

    from barnabas.links.storage_link import AnswerRoom

_SERVICE: Final = DESCRIPTOR.services_by_name["Storage"]
_APPEND: Final = method_path(_SERVICE.methods_by_name["Append"])
_FETCH: Final = method_path(_SERVICE.methods_by_name["Fetch"])
_REPLICATE: Final = method_path(_SERVICE.methods_by_name["Replicate"])

INSIDE: Final = ("barnabas-reads-for", "coordinator")
"""Metadata of a Fetch stream whose reads are not for clients, and not counted as theirs."""


class StorageConnection(ServiceCalls):
    """Owns the channels and streams to one storage node.

    Appends and fetches have a connection each, so that neither waits behind the other's flow control. The calls share
    the fetches' connection; so does a follower, who asks for nothing else.
    """

    here = None

    def __init__(
        self,
        address: str,
        counts: StorageStreamCounts | None = None,
        *,
        reads_for_clients: bool = True,
        append_bytes_max: int = UNANSWERED_BYTES_MAX,
        answer_room: AnswerRoom | None = None,
        open_channel: Callable[[str], grpc.aio.Channel] = open_channel,
    ) -> None:
        """`counts` are those of all the service's connections; its own where nobody looks at them.

        `append_bytes_max` is what may be unanswered of appends before further ones are refused. Results of fetches are
        taken from the node where there is `answer_room`.
        """
        counts = counts or StorageStreamCounts()
        metadata = None if reads_for_clients else (INSIDE,)
        self.address = address
        self._append_channel = open_channel(address)
        self._fetch_channel = open_channel(address)
        open_appends = self._append_channel.stream_stream(
            _APPEND, None, counts.appends.received.counting(AppendResultFrame.FromString)
        )
        encode_appends = counts.appends.sent.counting_encoder(encode_append_frame)
        super().__init__(self._fetch_channel, _SERVICE)
        self.appends: CoalescedStream[AppendRequest | AppendBatches, AppendResult] = CoalescedStream(
            lambda: open_appends(None),
            lambda requests, _hurried, _withdrawn: encode_appends(requests),
            lambda frame: frame.results,
            name=f"appends to {address}",
            counts=counts.appends,
            unanswered_bytes_max=append_bytes_max,
            is_ordered=True,
        )
        open_fetches = self._fetch_channel.stream_stream(
            _FETCH,
            counts.fetches.sent.counting_encoder(FetchFrame.SerializeToString),
            counts.fetches.received.counting(decode_fetch_results),
        )
        self.fetches: CoalescedStream[FetchRequest, FetchedResult] = CoalescedStream(
            lambda: open_fetches(None, metadata=metadata),
            lambda requests, hurried, withdrawn: FetchFrame(
                requests=requests, hurry=hurried, withdraw=withdrawn
            ),
            lambda results: results,
            name=f"fetches from {address}",
            counts=counts.fetches,
            on_results=None if answer_room is None else partial(_keep_within, answer_room),
        )

    def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        """See `links.storage_link.StorageLink`."""
        ask = self._fetch_channel.stream_stream(
            _REPLICATE, ReplicaPositionsFrame.SerializeToString, decode_replica_records
        )
        return streamed(ask, positions, list)

    async def close(self) -> None:
        await self.appends.close()
        await self.fetches.close()
        for channel in (self._append_channel, self._fetch_channel):
            await channel.close(grace=None)


async def _keep_within(room: AnswerRoom, results: Sequence[FetchedResult]) -> None:
    """Count what came, and return when more may come."""
    room.on_read(sum(len(fetched.records) for result in results for fetched in result.partitions))
    await room.wait_for_room()
