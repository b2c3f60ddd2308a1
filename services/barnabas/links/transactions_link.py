"""What others may ask of a transaction coordinator, and what it answers: gateways, and whoever takes the first records
of a transaction for a partition.

The calls have their names in transactions.proto, and their comments there; Kafka's codes are in the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from barnabas.links.begun import Begun
    from barnabas.messages import transactions_pb2 as pb


class TransactionQuestion(NamedTuple):
    """Is the partition part of the transaction?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds_partition: bool
    """Whether to make it part of the transaction, where it is not."""
    topic: str
    partition: int


class TransactionsLink(Protocol):
    """One coordinator. Calls fail with a `LinkError`, after `timeout` seconds at the latest; a call that is
    cancelled ends there, too.
    """

    def InitProducerId(
        self, request: pb.InitProducerIdRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.InitProducerIdResponse]: ...

    def AddPartitionsToTxn(
        self, request: pb.AddPartitionsToTxnRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AddPartitionsToTxnResponse]: ...

    def EndTxn(
        self, request: pb.EndTxnRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.EndTxnResponse]: ...

    def DescribeTransactions(
        self, request: pb.DescribeTransactionsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.DescribeTransactionsResponse]: ...

    def ListTransactions(
        self, request: pb.ListTransactionsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ListTransactionsResponse]: ...

    def WriteTxnMarkers(
        self, request: pb.WriteTxnMarkersRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.WriteTxnMarkersResponse]: ...

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        """True where a coordinator in the same process knows it now; False: ask."""
        ...

    def begin(self, call: str, request: Any, timeout: float) -> Begun | None:
        """Begin the call of this name where the coordinator is in the same process, and can at least decide at once
        what becomes of it. None, with nothing changed, where it has to be awaited as any. Raises Unreachable.
        """
        ...

    async def close(self) -> None:
        """What waits fails."""
        ...


class TransactionsService(Protocol):
    """A transaction coordinator, to those who serve it to others."""

    async def InitProducerId(self, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse: ...

    async def AddPartitionsToTxn(
        self, request: pb.AddPartitionsToTxnRequest
    ) -> pb.AddPartitionsToTxnResponse: ...

    async def EndTxn(self, request: pb.EndTxnRequest) -> pb.EndTxnResponse: ...

    async def DescribeTransactions(
        self, request: pb.DescribeTransactionsRequest
    ) -> pb.DescribeTransactionsResponse: ...

    async def ListTransactions(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse: ...

    async def WriteTxnMarkers(self, request: pb.WriteTxnMarkersRequest) -> pb.WriteTxnMarkersResponse: ...

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        """Whether the partition is certainly part of the transaction; False also where only the log could tell."""
        ...

    def begin(self, call: str, request: Any) -> Begun | None:
        """Decide about a request of the call of this name. None, with nothing changed, where it is to be awaited."""
        ...
