"""The transactional ids of one partition of __transaction_state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """A transaction that is decided for good, whose partitions are to be told by markers."""

    transactional_id: str
    producer_id: int
    """What the markers carry."""
    producer_epoch: int
    """What the markers carry."""
    committed: bool
    transaction_version: int
    """What the markers carry: 2 when each transaction has its own epoch (KIP-1228), else 0."""
    partitions: frozenset[TopicPartition]
    """Those without a marker yet. There may be none from the start: then it is to be completed at once."""


@dataclass(slots=True)
class _Beneath:
    """What the log says of one id, and how many records that change it are on their way."""

    committed: Transaction | None
    on_their_way: int = 0


class TransactionShard:
    """Owns everything the coordinator knows of one partition.

    `transactions` is what the log says, or will say once the decisions on their way are in it; only `replay` changes
    it, the same way while loading and while serving. Decisions are taken on it. What is told without waiting for the
    log is `committed`. Besides, only here: which markers a decided transaction still lacks (`unmarked`, which starts
    afresh with every partition of it after a reload), when to look for what takes too long, and what did.
    """

    def __init__(
        self,
        config: TransactionSettings,
        transaction_version: Callable[[], int],
        on_ready_to_mark: Callable[[], None] = lambda: None,
    ) -> None:
        """`transaction_version` gives the finalized level of that feature (0 to 2); `on_ready_to_mark` hears that
        `take_ready_to_mark` has something."""
        self.config = config
        self.transaction_version = transaction_version
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """Ids of `transactions` that are Ongoing, in the order in which they came to be."""
        self.unmarked: dict[str, set[TopicPartition]] = {}
        """Partitions without a marker yet, of each id whose end is committed; empty where it is to be completed."""
        self._seen_open: dict[str, int] = {}
        """Of those of `ongoing` that were looked at, since when, in monotonic ms."""
        self.overdue: deque[str] = deque()
        """Ids whose transactions took too long when that was looked for last, and whose turn has not come yet."""
        self.time_out_scan_ms = 0
        """When to look for transactions that take too long, if there are any, in monotonic ms."""
        self.expiry_scan_ms = 0
        """When to look for ids that nobody uses, if there are any, in monotonic ms."""
        self._on_ready_to_mark = on_ready_to_mark
        self._ready: list[EndedTransaction] = []
        self._beneath: dict[str, _Beneath] = {}

    def replay(self, record: TransactionRecord) -> None:
        """Take in one record of the log."""
        transactional_id, transaction = record.transactional_id, record.value
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            self.ongoing.setdefault(transactional_id)
        else:
            self.ongoing.pop(transactional_id, None)
            self._seen_open.pop(transactional_id, None)
        # Whatever comes after a decision comes after its markers, or there were none to write.
        if self.unmarked.pop(transactional_id, None) is not None and self._ready:
            self._ready = [each for each in self._ready if each.transactional_id != transactional_id]

    def replay_uncommitted(self, record: TransactionRecord) -> None:
        """Take in one record that is decided and on its way into the log; `on_committed` follows."""
        transactional_id = record.transactional_id
        before = self.transactions.get(transactional_id)
        beneath = self._beneath.setdefault(transactional_id, _Beneath(before))
        beneath.on_their_way += 1
        self.replay(record)

    def on_committed(self, record: TransactionRecord) -> None:
        """The oldest record that `replay_uncommitted` took in is in the log now."""
        beneath = self._beneath[record.transactional_id]
        beneath.committed = record.value
        beneath.on_their_way -= 1
        if not beneath.on_their_way:
            del self._beneath[record.transactional_id]
        if record.value is not None and record.value.state in PREPARED:
            self.mark([(record.transactional_id, record.value)])

    def committed(self, transactional_id: str) -> Transaction | None:
        """What the log certainly says of the id, without the decisions on their way."""
        beneath = self._beneath.get(transactional_id)
        return self.transactions.get(transactional_id) if beneath is None else beneath.committed

    def committed_ids(self) -> list[str]:
        """The ids that the log certainly knows."""
        newest = [each for each in self.transactions if self.committed(each) is not None]
        forgotten = [
            each
            for each, beneath in self._beneath.items()
            if beneath.committed is not None and each not in self.transactions
        ]
        return newest + forgotten

    def mark(self, ended: Iterable[tuple[str, Transaction]]) -> None:
        """Have the partitions of transactions told, whose ends are certainly in the log."""
        was_ready = bool(self._ready)
        for transactional_id, transaction in ended:
            self.unmarked[transactional_id] = set(transaction.partitions)
            self._ready.append(_ended(transactional_id, transaction))
        if self._ready and not was_ready:
            self._on_ready_to_mark()

    def take_ready_to_mark(self) -> list[EndedTransaction]:
        """Transactions whose markers nobody has been asked to write yet; each is given out once.

        None is given out before its end is committed.
        """
        ready, self._ready = self._ready, []
        return ready

    def look_at_ongoing(self, now_ms: int) -> None:
        """Remember from which monotonic time on each transaction is seen open."""
        for each in self.ongoing:
            self._seen_open.setdefault(each, now_ms)

    def seen_open_ms(self, transactional_id: str, now_ms: int) -> int:
        """For how long the transaction has been seen open, in ms."""
        return now_ms - self._seen_open.get(transactional_id, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When time is needed next, in monotonic ms, or a little earlier; None for never."""
        if self.ongoing:
            return min(self.time_out_scan_ms, self.expiry_scan_ms)
        return self.expiry_scan_ms if self.transactions else None

    def on_jump(self, now_ms: int, jumped_ms: int) -> None:
        """Clients that are alive get limits.AFTER_JUMP_MS to end what took too long by the jump alone; ids that nobody
        uses are forgotten at once."""
        self.time_out_scan_ms = max(self.time_out_scan_ms, now_ms + limits.AFTER_JUMP_MS)
        self.expiry_scan_ms = min(self.expiry_scan_ms, now_ms)


def _ended(transactional_id: str, transaction: Transaction) -> EndedTransaction:
    return EndedTransaction(
        transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        committed=transaction.state is TransactionState.PREPARE_COMMIT,
        transaction_version=transaction.client_version,
        partitions=transaction.partitions,
    )
