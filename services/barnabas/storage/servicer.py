"""The gRPC face of a storage node: hands each call to its handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import grpc.aio

from barnabas.rpc.storage_streams import INSIDE
from barnabas.rpc.v1.storage_pb2 import (
    DESCRIPTOR,
    AppendFrame,
    AppendResultFrame,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    FetchFrame,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.describe_producers import DescribeProducersHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler
from barnabas.storage.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler

SERVICE: Final = DESCRIPTOR.services_by_name["Storage"].full_name


class StorageServicer:
    """Owns nothing. The methods and their names are those of storage.proto's service."""

    def __init__(
        self,
        appends: AppendHandler,
        fetches: FetchHandler,
        list_offsets: ListOffsetsHandler,
        offset_for_leader_epoch: OffsetForLeaderEpochHandler,
        delete_records: DeleteRecordsHandler,
        describe_log_dirs: DescribeLogDirsHandler,
        describe_producers: DescribeProducersHandler,
    ) -> None:
        self.appends = appends
        self.fetches = fetches
        self._list_offsets = list_offsets
        self._offset_for_leader_epoch = offset_for_leader_epoch
        self._delete_records = delete_records
        self._describe_log_dirs = describe_log_dirs
        self._describe_producers = describe_producers

    async def Append(self, request_iterator: AsyncIterator[AppendFrame], context: Any) -> None:  # noqa: N802
        # At once: it tells the peer that the stream is open.
        await context.send_initial_metadata(())
        await self.appends.serve(request_iterator, context.write)

    async def Fetch(self, request_iterator: AsyncIterator[FetchFrame], context: Any) -> None:  # noqa: N802
        await context.send_initial_metadata(())
        is_client = INSIDE not in (context.invocation_metadata() or ())
        await self.fetches.serve(request_iterator, context.write, is_client=is_client)

    async def ListOffsets(self, request: ListOffsetsRequest, context: Any) -> ListOffsetsResponse:  # noqa: N802
        return await self._list_offsets.handle(request)

    async def OffsetForLeaderEpoch(  # noqa: N802
        self, request: OffsetForLeaderEpochRequest, context: Any
    ) -> OffsetForLeaderEpochResponse:
        return self._offset_for_leader_epoch.handle(request)

    async def DeleteRecords(  # noqa: N802
        self, request: DeleteRecordsRequest, context: Any
    ) -> DeleteRecordsResponse:
        return await self._delete_records.handle(request)

    async def DescribeLogDirs(  # noqa: N802
        self, request: DescribeLogDirsRequest, context: Any
    ) -> DescribeLogDirsResponse:
        return await self._describe_log_dirs.handle(request)

    async def DescribeProducers(  # noqa: N802
        self, request: DescribeProducersRequest, context: Any
    ) -> DescribeProducersResponse:
        return self._describe_producers.handle(request)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve this node's calls on `server`; a Fetch stream's results come to gRPC already encoded."""
        appends, fetches = self.appends.stream_counts, self.fetches.stream_counts
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        handlers = {
            "Append": stream(
                self.Append,
                appends.received.counting(AppendFrame.FromString),
                appends.sent.counting_encoder(AppendResultFrame.SerializeToString),
            ),
            "Fetch": stream(self.Fetch, fetches.received.counting(FetchFrame.FromString), None),
            "ListOffsets": unary(
                self.ListOffsets, ListOffsetsRequest.FromString, ListOffsetsResponse.SerializeToString
            ),
            "OffsetForLeaderEpoch": unary(
                self.OffsetForLeaderEpoch,
                OffsetForLeaderEpochRequest.FromString,
                OffsetForLeaderEpochResponse.SerializeToString,
            ),
            "DeleteRecords": unary(
                self.DeleteRecords, DeleteRecordsRequest.FromString, DeleteRecordsResponse.SerializeToString
            ),
            "DescribeLogDirs": unary(
                self.DescribeLogDirs,
                DescribeLogDirsRequest.FromString,
                DescribeLogDirsResponse.SerializeToString,
            ),
            "DescribeProducers": unary(
                self.DescribeProducers,
                DescribeProducersRequest.FromString,
                DescribeProducersResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
