"""What a coordinator of transactions answers to others: each call hands its request to its handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.runtime.handler import answer, begin
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.handlers.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from barnabas.coordinator.transactions.handlers.describe_transactions import DESCRIBE_TRANSACTIONS
from barnabas.coordinator.transactions.handlers.end_txn import END_TXN
from barnabas.coordinator.transactions.handlers.init_producer_id import INIT_PRODUCER_ID
from barnabas.coordinator.transactions.handlers.list_transactions import LIST_TRANSACTIONS
from barnabas.coordinator.transactions.handlers.write_txn_markers import WRITE_TXN_MARKERS
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import transactions_pb2 as messages

if TYPE_CHECKING:
    from barnabas.links.begun import Begun


class TransactionsServicer:
    """Answers every call with a message; its error codes are Kafka's. A cancelled call waits no longer.

    A `links.transactions_link.TransactionsService`; owns nothing.
    """

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def begin(self, call: str, request: Any) -> Begun | None:
        """See `TransactionsService`."""
        return begin(END_TXN, self._coordinator, request) if call == END_TXN.name else None

    async def InitProducerId(
        self, request: messages.InitProducerIdRequest
    ) -> messages.InitProducerIdResponse:
        return await answer(INIT_PRODUCER_ID, self._coordinator, request)

    async def AddPartitionsToTxn(
        self, request: messages.AddPartitionsToTxnRequest
    ) -> messages.AddPartitionsToTxnResponse:
        return await answer(ADD_PARTITIONS_TO_TXN, self._coordinator, request)

    async def EndTxn(self, request: messages.EndTxnRequest) -> messages.EndTxnResponse:
        return await answer(END_TXN, self._coordinator, request)

    async def DescribeTransactions(
        self, request: messages.DescribeTransactionsRequest
    ) -> messages.DescribeTransactionsResponse:
        return await answer(DESCRIBE_TRANSACTIONS, self._coordinator, request)

    async def ListTransactions(
        self, request: messages.ListTransactionsRequest
    ) -> messages.ListTransactionsResponse:
        return await answer(LIST_TRANSACTIONS, self._coordinator, request)

    async def WriteTxnMarkers(
        self, request: messages.WriteTxnMarkersRequest
    ) -> messages.WriteTxnMarkersResponse:
        return await answer(WRITE_TXN_MARKERS, self._coordinator, request)

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        return self._coordinator.is_part(question)
