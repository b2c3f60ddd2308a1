"""The network of a service in a process of its own: gRPC, with the limits that every link between services has."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from barnabas.links.limits import UNANSWERED_BYTES_MAX
from barnabas.rpc.calls import ServiceCalls
from barnabas.rpc.connections import open_channel
from barnabas.rpc.server import RpcServer, make_server

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from barnabas.links.controller_link import ControllerLink
    from barnabas.links.coordinator_link import CoordinatorLink
    from barnabas.links.storage_link import AnswerRoom, RemoteStorageLink
    from barnabas.links.stream_counts import StorageStreamCounts
    from barnabas.links.transactions_link import TransactionsLink


class GrpcNetwork:
    """See `links.network.Network`. Owns nothing. What a service has nothing to do with is not imported."""

    def __init__(
        self,
        open_channel: Callable[[str], grpc.aio.Channel] = open_channel,
        make_server: Callable[[], grpc.aio.Server] = make_server,
    ) -> None:
        """A simulation has channels and servers of its own."""
        self._open_channel = open_channel
        self._make_server = make_server

    def connect_storage(
        self,
        address: str,
        counts: StorageStreamCounts | None = None,
        *,
        reads_for_clients: bool = True,
        append_bytes_max: int | None = None,
        answer_room: AnswerRoom | None = None,
    ) -> RemoteStorageLink:
        from barnabas.rpc.storage_streams import StorageConnection

        connection = StorageConnection(
            address,
            counts,
            reads_for_clients=reads_for_clients,
            append_bytes_max=append_bytes_max or UNANSWERED_BYTES_MAX,
            answer_room=answer_room,
            open_channel=self._open_channel,
        )
        return cast("RemoteStorageLink", connection)

    def connect_coordinator(self, address: str) -> CoordinatorLink:
        from barnabas.messages import coordinator_pb2 as pb
        from barnabas.rpc.coalesced_calls import CoalescedCalls

        lists = (pb.ListGroupsRequest, pb.DescribeGroupsRequest, pb.ConsumerGroupDescribeRequest)

        def is_answer_large(request: object) -> bool:
            if isinstance(request, pb.OffsetFetchRequest):
                return request.all_topics
            return isinstance(request, lists)

        contract = pb.DESCRIPTOR.services_by_name["GroupCoordinator"]
        name = f"calls of groups to {address}"
        calls = CoalescedCalls(self._open_channel(address), contract, name, is_answer_large)
        return cast("CoordinatorLink", calls)

    def connect_transactions(self, address: str) -> TransactionsLink:
        from barnabas.messages import transactions_pb2 as pb
        from barnabas.rpc.coalesced_calls import TransactionCalls

        lists = (pb.ListTransactionsRequest, pb.DescribeTransactionsRequest)

        def is_answer_large(request: object) -> bool:
            return isinstance(request, lists)

        contract = pb.DESCRIPTOR.services_by_name["TransactionCoordinator"]
        name = f"calls of transactions to {address}"
        calls = TransactionCalls(self._open_channel(address), contract, name, is_answer_large)
        return cast("TransactionsLink", calls)

    def connect_controller(self, address: str) -> ControllerLink:
        from barnabas.messages.controller_pb2 import DESCRIPTOR

        calls = ServiceCalls(self._open_channel(address), DESCRIPTOR.services_by_name["Controller"])
        return cast("ControllerLink", calls)

    def listen(self, address: str) -> RpcServer:
        return RpcServer(address, self._make_server())
