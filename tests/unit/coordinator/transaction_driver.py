"""Drives one `TransactionShard` the way the shell does, with time, commits, producer ids in the test's hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from barnabas.coordinator.limits import TRANSACTION_RECORD_BYTES_MAX
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.transactions.codec import decode_record, encode_record
from barnabas.coordinator.transactions.core.add_partitions import handle_add_partitions, is_part
from barnabas.coordinator.transactions.core.completion import complete, on_marked
from barnabas.coordinator.transactions.core.deadlines import on_loaded, on_resumed, on_time
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.end_txn import handle_end_txn
from barnabas.coordinator.transactions.core.init_producer_id import handle_init_producer_id
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.shard import EndedTransaction, TransactionShard
from barnabas.coordinator.transactions.core.states import TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import transactions_pb2 as pb

ID = "payments"
PRODUCER = 7
"""The producer id that `a_transaction` has."""
NEW_PRODUCER = 1_000
"""The first that is drawn."""
TIMEOUT_MS = 60_000

STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""Those that a transactional id can be in."""


def partitions(*names: str) -> frozenset[TopicPartition]:
    """`t-0` as a partition, and so on."""
    return frozenset(TopicPartition(*_split(name)) for name in names)


def a_transaction(
    state: TransactionState,
    epoch: int = 5,
    *,
    last: int = -1,
    version: int = 2,
    previous: int = PRODUCER,
    next_id: int = -1,
    now_ms: int = 0,
) -> Transaction:
    """A transaction of PRODUCER as its log would have it in `state`; t-0 is part of it while it is not complete."""
    is_open = state in (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    )
    return Transaction(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        last_update_ms=now_ms,
        start_ms=-1 if state is TransactionState.EMPTY else now_ms,
        partitions=partitions("t-0") if is_open else frozenset(),
        previous_producer_id=previous,
        next_producer_id=next_id,
        client_version=version,
        last_producer_epoch=last,
    )


@dataclass
class Write:
    """A decision on its way into the log; without records where the shell writes its barrier."""

    records: list[TransactionRecord]
    encoded: list[tuple[bytes, bytes | None]]
    replies: list[tuple[Waiter, Message]] = field(default_factory=list)


class TransactionDriver:
    """One shard, its log as bytes, and what is on its way into it. A decision is committed at once unless `holds`."""

    def __init__(self, config: TransactionSettings | None = None, *, version: int = 2) -> None:
        self.config = config or TransactionSettings()
        self.clock = ManualClock()
        self.version = version
        """The finalized transaction.version."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.on_their_way: list[Write] = []
        self.holds = False
        self.replies: dict[int, Message] = {}
        self.has_producer_ids = True
        self.drawn = 0
        self.times_ready = 0
        self.notes: list[str] = []
        self.decision = self._new_decision()
        """The last one."""
        self._asked = 0
        self.shard = self._new_shard()
        self.take(lambda decision: on_loaded(self.shard, decision))

    # -- what the shell does --------------------------------------------------------------------------------------

    def take(self, work: Callable[[Decision], None]) -> Decision:
        self.decision = decision = self._new_decision()
        work(decision)
        encoded = [encode_record(record, self.version) for record in decision.records]
        for record, (key, value) in zip(decision.records, encoded, strict=True):
            assert len(key) + len(value or b"") <= TRANSACTION_RECORD_BYTES_MAX
            self.shard.replay_uncommitted(record)
        self._deliver(decision.replies_at_once)
        if decision.records or decision.must_be_owner:
            self.on_their_way.append(Write(decision.records, encoded, decision.replies))
        elif self.on_their_way:
            self.on_their_way[-1].replies.extend(decision.replies)
        else:
            self._deliver(decision.replies)
        self.notes += [note.event for note in decision.notes]
        if not self.holds:
            self.commit()
        return decision

    def commit(self, count: int | None = None) -> None:
        """The oldest decisions, `count` of them or all, are in the log now."""
        for _ in range(len(self.on_their_way) if count is None else count):
            write = self.on_their_way.pop(0)
            for record, encoded in zip(write.records, write.encoded, strict=True):
                self.log.append(encoded)
                self.shard.on_committed(record)
            self._deliver(write.replies)

    def reload(self) -> None:
        """A new coordinator: replay the log, which is as it is, into a new shard. Who waits hears nothing any more."""
        self.on_their_way.clear()
        self.shard = self._new_shard()
        for key, value in self.log:
            self.shard.replay(decode_record(key, value))
        self.take(lambda decision: on_loaded(self.shard, decision))

    def resume(self) -> None:
        """The log takes writes again."""
        self.take(lambda decision: on_resumed(self.shard, decision))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, handling deadlines when they are due."""
        end_ms = self._monotonic_ms() + milliseconds
        while True:
            due_ms = self.shard.next_deadline_ms()
            now_ms = self._monotonic_ms()
            step_ms = end_ms - now_ms if due_ms is None else min(max(due_ms - now_ms, 0), end_ms - now_ms)
            self.clock.advance(step_ms)
            self.look_at_clock()
            if now_ms + step_ms >= end_ms:
                return

    def skip(self, milliseconds: int) -> None:
        """Time passes in which nobody looks, and then somebody does."""
        self.clock.advance(milliseconds)
        self.look_at_clock()

    def look_at_clock(self) -> None:
        """Handle deadlines that are due."""
        due_ms = self.shard.next_deadline_ms()
        if due_ms is not None and due_ms <= self._monotonic_ms():
            self.take(lambda decision: on_time(self.shard, decision, self.draw))

    def draw(self) -> int:
        if not self.has_producer_ids:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, "no producer id is at hand")
        self.drawn += 1
        return NEW_PRODUCER + self.drawn - 1

    # -- requests ---------------------------------------------------------------------------------------------------

    def init(
        self, producer_id: int = -1, epoch: int = -1, *, name: str = ID, timeout: int = TIMEOUT_MS
    ) -> str | None:
        request = pb.InitProducerIdRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=timeout,
        )
        return self.answer(self.ask(handle_init_producer_id, request, self.draw))

    def add(
        self,
        *names: str,
        producer_id: int = PRODUCER,
        epoch: int = 5,
        version: int = 2,
        verify: bool = False,
        name: str = ID,
    ) -> str | None:
        item = pb.TransactionPartitions(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify,
            transaction_version=version,
            topics=[
                pb.TransactionTopic(name=topic, partitions=[number])
                for topic, number in map(_split, names or ("t-0",))
            ],
        )
        if not verify:
            return self.answer(self.ask(handle_add_partitions, item))
        at_once = [
            is_part(self.shard, TransactionQuestion(name, producer_id, epoch, False, *_split(each)))
            for each in names or ("t-0",)
        ]
        answer = self.answer(self.ask(handle_add_partitions, item))
        said = [code == "NONE" for code in answer.split(",")] if answer else [False] * len(at_once)
        assert at_once == said or (answer is None and not all(at_once)), "a yes is the same, had either way"
        return answer

    def end(
        self,
        result: str,
        *,
        producer_id: int = PRODUCER,
        epoch: int = 5,
        version: int = 2,
        name: str = ID,
    ) -> str | None:
        request = pb.EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed={"commit": True, "abort": False}[result],
            transaction_version=version,
        )
        return self.answer(self.ask(handle_end_txn, request, self.draw))

    @property
    def next_waiter(self) -> int:
        """Names the next call."""
        return self._asked + 1

    def ask(self, handle: Callable[..., None], request: Message, *more: object) -> int:
        self._asked += 1
        waiter = Waiter(self._asked)
        self.take(lambda decision: handle(self.shard, request, waiter, decision, *more))
        return waiter

    def answer(self, waiter: int) -> str | None:
        """What the call has heard, in words; None while it waits."""
        return show(self.replies[waiter]) if waiter in self.replies else None

    # -- markers ----------------------------------------------------------------------------------------------------

    def mark(self) -> list[EndedTransaction]:
        """Write all markers that are asked for, and have what has them completed."""
        ended = self.shard.take_ready_to_mark()
        for each in ended:
            if on_marked(self.shard, each, each.partitions):
                self.complete(each)
        return ended

    def complete(self, ended: EndedTransaction) -> Decision:
        return self.take(
            lambda decision: complete(
                self.shard, ended.transactional_id, ended.producer_id, ended.producer_epoch, decision
            )
        )

    # -- what the test looks at -------------------------------------------------------------------------------------

    def given(self, transaction: Transaction, name: str = ID) -> None:
        """Have the log, and the shard, know a transaction as if it had come to this."""
        self.take(lambda decision: decision.write(name, transaction))

    def now(self, name: str = ID) -> Transaction:
        """The newest that is decided of an id."""
        return self.shard.transactions[name]

    def at(self, name: str = ID) -> str:
        """The newest that is decided of an id, in short."""
        transaction = self.now(name)
        return f"{transaction.state} {transaction.producer_id}/{transaction.producer_epoch}"

    def written(self) -> list[TransactionRecord]:
        """What the last decision wrote."""
        return self.decision.records

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, lambda: self.version, self._on_ready)

    def _on_ready(self) -> None:
        self.times_ready += 1

    def _new_decision(self) -> Decision:
        return Decision(self.clock.now_ms(), self._monotonic_ms())

    def _monotonic_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def _deliver(self, replies: list[tuple[Waiter, Message]]) -> None:
        for waiter, message in replies:
            assert waiter not in self.replies, "one answer for one call"
            self.replies[waiter] = message


def show(message: Message) -> str:
    """An answer in words: the error, or id and epoch."""
    match message:
        case pb.InitProducerIdResponse() | pb.EndTxnResponse():
            identity = (message.producer_id, message.producer_epoch)
            if message.error_code:
                assert identity == (-1, -1)
                return _code(message.error_code)
            return f"{message.producer_id}/{message.producer_epoch}"
        case pb.TransactionPartitionsResult():
            return ",".join(_code(code) for code in message.error_codes)
        case _:
            raise AssertionError(f"no way to show {message!r}")


def _code(value: int) -> str:
    return ErrorCode(value).name.upper()


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)
