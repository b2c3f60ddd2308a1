"""The network of a broker's services: they reach one another by plain calls, and everybody else as ever.

All of them are at one address, where others find them from the moment on in which the storage node serves. Its logs are
recovered by then: an address that answers before would be taken for a node that lives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from barnabas.host.local_calls import LocalCalls, LocalService, LocalTransactions
from barnabas.links.coordinator_link import CoordinatorService
from barnabas.links.transactions_link import TransactionsService

if TYPE_CHECKING:
    from barnabas.host.local_node import LocalNode
    from barnabas.links.controller_link import ControllerLink, ControllerService
    from barnabas.links.coordinator_link import CoordinatorLink
    from barnabas.links.network import Network, Server
    from barnabas.links.storage_link import RemoteStorageLink, StorageService
    from barnabas.links.stream_counts import StorageStreamCounts
    from barnabas.links.transactions_link import TransactionsLink


class LocalNetwork:
    """The network of a broker's gateway and storage node, which a coordinator may join: see `links.network.Network`."""

    def __init__(self, outer: Network, listen_address: str, advertised_address: str) -> None:
        """The addresses are those of the storage node: where it listens, and as others know it, if otherwise."""
        self.outer = outer
        self.addresses = {listen_address, advertised_address or listen_address}
        self.coordinator = _CoordinatorServer(listen_address)

    def connect_storage(
        self, address: str, counts: StorageStreamCounts | None = None, **more: Any
    ) -> RemoteStorageLink:
        """The gateway has its link to the node in this process from elsewhere, and no node follows itself."""
        return self.outer.connect_storage(address, counts, **more)

    def connect_coordinator(self, address: str) -> CoordinatorLink:
        if address not in self.addresses:
            return self.outer.connect_coordinator(address)
        from barnabas.messages.coordinator_pb2 import DESCRIPTOR

        contract = DESCRIPTOR.services_by_name["GroupCoordinator"]
        return cast("CoordinatorLink", LocalCalls(contract, self.coordinator.groups))

    def connect_transactions(self, address: str) -> TransactionsLink:
        if address not in self.addresses:
            return self.outer.connect_transactions(address)
        from barnabas.messages.transactions_pb2 import DESCRIPTOR

        contract = DESCRIPTOR.services_by_name["TransactionCoordinator"]
        return cast("TransactionsLink", LocalTransactions(contract, self.coordinator.transactions))

    def connect_controller(self, address: str) -> ControllerLink:
        return self.outer.connect_controller(address)

    def listen(self, address: str) -> Server:
        return _NodeServer(self.outer.listen(address), self.coordinator)


class CoordinatorNetwork(LocalNetwork):
    """The network of the coordinator in the broker that has `broker` for its network."""

    def __init__(self, broker: LocalNetwork, node: LocalNode) -> None:
        """`node` is the link to the broker's storage node."""
        self.outer, self.addresses, self.coordinator = broker.outer, broker.addresses, broker.coordinator
        self._node = node

    def connect_storage(
        self, address: str, counts: StorageStreamCounts | None = None, **more: Any
    ) -> RemoteStorageLink:
        if address in self.addresses:
            return cast("RemoteStorageLink", self._node)  # no coordinator follows a node
        return super().connect_storage(address, counts, **more)

    def listen(self, address: str) -> Server:
        assert address in self.addresses, "a broker has one address for all of its services"
        return self.coordinator


class _NodeServer:
    """The storage node's: a `links.network.Server` that serves the coordinator from the same moment on."""

    def __init__(self, outer: Server, coordinator: _CoordinatorServer) -> None:
        self._outer = outer
        self._coordinator = coordinator

    @property
    def address(self) -> str:
        return self._outer.address

    def another(self) -> Server:
        return self._outer.another()

    async def serve_controller(self, service: ControllerService) -> None:
        await self._outer.serve_controller(service)

    async def serve_coordinator(
        self, groups: CoordinatorService, transactions: TransactionsService | None = None
    ) -> None:
        await self._outer.serve_coordinator(groups, transactions)

    async def serve_storage(self, service: StorageService, counts: StorageStreamCounts) -> None:
        await self._coordinator.begin(self._outer)
        await self._outer.serve_storage(service, counts)
        self._coordinator.go_on()

    async def stop(self, grace_seconds: float | None) -> None:
        await self._outer.stop(grace_seconds)


class _CoordinatorServer:
    """The coordinator's: a `links.network.Server` that answers this process, and others beside the node."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.groups: LocalService[CoordinatorService] = LocalService()
        self.transactions: LocalService[TransactionsService] = LocalService()
        self._offered: tuple[CoordinatorService, TransactionsService | None] | None = None
        self._node: Server | None = None
        self._outer: Server | None = None
        self._may_go_on = asyncio.Event()

    async def serve_coordinator(
        self, groups: CoordinatorService, transactions: TransactionsService | None = None
    ) -> None:
        """Returns when the storage node serves, or it is given up that it will."""
        self._offered = groups, transactions
        await self._join()
        await self._may_go_on.wait()
        if self._outer is not None:
            self.groups.serving, self.transactions.serving = self._offered

    async def begin(self, node: Server) -> None:
        """The storage node is about to serve."""
        self._node = node
        await self._join()

    async def _join(self) -> None:
        if self._node is not None and self._offered is not None:
            self._outer = self._node.another()
            await self._outer.serve_coordinator(*self._offered)

    def go_on(self) -> None:
        """Nobody waits for the storage node any more: it serves; or the broker stops, perhaps before it did."""
        self._may_go_on.set()

    async def stop(self, grace_seconds: float | None) -> None:
        stopping = [self.groups.stop(grace_seconds), self.transactions.stop(grace_seconds)]
        if self._outer is not None:
            stopping.append(self._outer.stop(grace_seconds))
        await asyncio.gather(*stopping)

    def another(self) -> Server:
        raise NotImplementedError("a broker has one coordinator")

    async def serve_controller(self, service: ControllerService) -> None:
        raise NotImplementedError("a broker has no controller")

    async def serve_storage(self, service: StorageService, counts: StorageStreamCounts) -> None:
        raise NotImplementedError("its storage node has a server of its own")
