"""How a service reaches the others, and is reached: `Environment.network`. In a process of its own that is gRPC
(`rpc.network`); where several services share one, it can be anything that keeps these promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.links.controller_link import ControllerLink, ControllerService
    from barnabas.links.coordinator_link import CoordinatorLink, CoordinatorService
    from barnabas.links.storage_link import AnswerRoom, RemoteStorageLink, StorageService
    from barnabas.links.stream_counts import StorageStreamCounts
    from barnabas.links.transactions_link import TransactionsLink, TransactionsService


class Server(Protocol):
    """A service at an address: it answers from one of `serve_...` to `stop`."""

    @property
    def address(self) -> str:
        """With the real port, where 0 was asked for."""
        ...

    def another(self) -> Server:
        """One more service at the same address, before all at it have stopped.

        It answers as soon as this one does, or later: what it serves is to be said before, as a call that is not known
        at an address is one that an earlier version lacks.
        """
        ...

    async def serve_controller(self, service: ControllerService) -> None: ...

    async def serve_coordinator(
        self, groups: CoordinatorService, transactions: TransactionsService | None = None
    ) -> None:
        """Without `transactions` who asks for them is answered as by an earlier version."""
        ...

    async def serve_storage(self, service: StorageService, counts: StorageStreamCounts) -> None:
        """`counts` are those of the node's end of its streams."""
        ...

    async def stop(self, grace_seconds: float | None) -> None:
        """Take no more calls; those under way have `grace_seconds`, or None at all. It may be stopped twice.

        In that time the answers of appends that were given are delivered. What else is served at the address goes on.
        """
        ...


class Network(Protocol):
    """Links are opened when they are first used, and again after they broke, until they are closed."""

    def connect_storage(
        self,
        address: str,
        counts: StorageStreamCounts | None = None,
        *,
        reads_for_clients: bool = True,
        append_bytes_max: int | None = None,
        answer_room: AnswerRoom | None = None,
    ) -> RemoteStorageLink:
        """`counts` are those of all the service's links to storage nodes; the link's own where nobody looks at them.

        `append_bytes_max` is what may be unanswered of appends before further ones are refused. Results of fetches are
        taken from the node where there is `answer_room`.
        """
        ...

    def connect_coordinator(self, address: str) -> CoordinatorLink: ...

    def connect_transactions(self, address: str) -> TransactionsLink:
        """The transaction coordinator in the same process as the group coordinator at `address`."""
        ...

    def connect_controller(self, address: str) -> ControllerLink: ...

    def listen(self, address: str) -> Server:
        """Take the address; nobody is answered yet. Raises OSError when it cannot be had."""
        ...
