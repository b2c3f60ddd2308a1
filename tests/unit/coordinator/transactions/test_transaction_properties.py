"""Two producers for each of two ids, zombies of one another; commits held back, moves, markers in pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from transaction_driver import PRODUCER, TransactionDriver, a_transaction

from barnabas.coordinator.transactions.codec import decode_record
from barnabas.coordinator.transactions.core.completion import on_marked
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.shard import EndedTransaction, TransactionShard
from barnabas.coordinator.transactions.core.states import COMPLETED, PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction

NAMES = ("a", "b")
producers = st.integers(0, 3)
versions = st.sampled_from([0, 2])

FOLLOWS = {
    None: {TransactionState.EMPTY},
    TransactionState.EMPTY: {
        None,
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
}
FOLLOWS[TransactionState.COMPLETE_COMMIT] = FOLLOWS[TransactionState.COMPLETE_ABORT] = FOLLOWS[
    TransactionState.EMPTY
]
"""What the log may say of an id after what it said last; None is nothing. After a decision comes its own end only."""


@dataclass
class Call:
    """A request whose answer has not been heard."""

    waiter: int
    request: str
    version: int
    producer_id: int
    epoch: int


class Producer:
    """A client that does what it is told, with the id and epoch that it was told last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.producer_id = -1
        self.epoch = -1
        self.call: Call | None = None


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver(TransactionSettings(transactional_id_expiration_ms=600_000))
        self.driver.holds = True
        self.producers = [Producer(name) for name in (*NAMES, *NAMES)]
        self.asked: list[EndedTransaction] = []
        """Whose markers this coordinator was asked for."""
        self.results: dict[tuple[int, int], bool] = {}
        """How transactions of version 2 ended, by what their markers carry."""
        self.markers: set[tuple[TopicPartition, int, int]] = set()
        self.handed_out: set[tuple[int, int]] = set()

    @initialize(epoch=st.sampled_from([0, 32_762, 32_764, 32_766]))
    def begin(self, epoch: int) -> None:
        """One of the ids is known, and may be near its last epoch."""
        self.driver.given(
            a_transaction(TransactionState.EMPTY, epoch, now_ms=self.driver.clock.now_ms()), "a"
        )
        self.driver.commit()
        self.handed_out.add((PRODUCER, epoch))
        for producer in self.producers:
            if producer.name == "a":
                producer.producer_id, producer.epoch = PRODUCER, epoch

    # -- producers ------------------------------------------------------------------------------------------------

    @rule(number=producers, is_going_on=st.booleans())
    def init(self, number: int, is_going_on: bool) -> None:
        producer = self._idle(number)
        if producer is None:
            return
        mine = (producer.producer_id, producer.epoch) if is_going_on else (-1, -1)
        self._sent(producer, "init", 0, *mine)
        self.driver.init(*mine, name=producer.name)
        self._hear()

    @rule(number=producers, version=versions, ahead=st.sampled_from([0, 0, 0, -1, 1]))
    def add(self, number: int, version: int, ahead: int) -> None:
        producer = self._idle(number)
        if producer is None or producer.producer_id < 0:
            return
        epoch = producer.epoch + ahead
        self._sent(producer, "add", version, producer.producer_id, epoch)
        self.driver.add(
            f"t-{number}",
            "t-9",
            producer_id=producer.producer_id,
            epoch=epoch,
            version=version,
            name=producer.name,
        )
        self._hear()

    @rule(number=producers, version=versions, result=st.sampled_from(["commit", "abort"]))
    def end(self, number: int, version: int, result: str) -> None:
        producer = self._idle(number)
        if producer is None or producer.producer_id < 0:
            return
        self._sent(producer, result, version, producer.producer_id, producer.epoch)
        self.driver.end(
            result,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            version=version,
            name=producer.name,
        )
        self._hear()

    @rule(
        number=producers, version=versions, results=st.lists(st.sampled_from(["commit", "abort"]), max_size=4)
    )
    def live(self, number: int, version: int, results: list[str]) -> None:
        """A producer is well for a while: it begins, ends, and everything lands."""
        self.settle()
        producer = self.producers[number]
        self.init(number, False)
        self.settle()
        self.init(number, False)
        for result in results:
            self.settle()
            self.add(number, version, 0)
            self.settle()
            self.end(number, version, result)
        assert producer.call is None or self.driver.on_their_way

    def settle(self) -> None:
        """All that is on its way arrives."""
        self.commit(99)
        self.take_ready()
        for _ in range(len(self.asked)):
            self.mark(0, 3)
        assert not self.asked
        self.commit(99)

    def _idle(self, number: int) -> Producer | None:
        self._hear()
        producer = self.producers[number]
        return producer if producer.call is None else None

    def _sent(self, producer: Producer, request: str, version: int, producer_id: int, epoch: int) -> None:
        producer.call = Call(self.driver.next_waiter, request, version, producer_id, epoch)

    def _hear(self) -> None:
        for producer in self.producers:
            call = producer.call
            answer = None if call is None else self.driver.answer(call.waiter)
            if call is None or answer is None:
                continue
            producer.call = None
            if answer[0].isalpha():
                continue
            if call.request == "init":
                self._initialized(producer, call, answer)
            else:
                self._ended(producer, call, answer)

    def _initialized(self, producer: Producer, call: Call, answer: str) -> None:
        identity = producer_id, epoch = _identity(answer)
        if call.producer_id < 0:
            assert identity not in self.handed_out, "who says nothing fences all others"
        assert producer_id != call.producer_id or epoch == call.epoch + 1
        self.handed_out.add(identity)
        producer.producer_id, producer.epoch = identity

    def _ended(self, producer: Producer, call: Call, answer: str) -> None:
        """The log says so, of just this transaction, and never the opposite."""
        epoch = call.epoch + 1 if call.version == 2 else call.epoch
        state = {"commit": TransactionState.PREPARE_COMMIT, "abort": TransactionState.PREPARE_ABORT}[
            call.request
        ]
        logged = {
            record.value.state
            for record in self._log()
            if record.value is not None and record.value.state in PREPARED
            if (record.value.producer_id, record.value.producer_epoch) == (call.producer_id, epoch)
        }
        assert state in logged
        if call.version == 2:
            assert logged == {state}
            producer.producer_id, producer.epoch = _identity(answer)
            self.handed_out.add(_identity(answer))

    # -- the log and the world ------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def commit(self, count: int) -> None:
        self.driver.commit(min(count, len(self.driver.on_their_way)))
        self._hear()

    @rule(landed=st.integers(0, 3))
    def move(self, landed: int) -> None:
        """Another coordinator takes over; of what was on its way some landed and the rest is lost. Nobody is told."""
        self._hear()
        self.driver.commit(min(landed, len(self.driver.on_their_way)))
        self.driver.reload()
        self.asked.clear()
        for producer in self.producers:
            producer.call = None

    @rule()
    def take_ready(self) -> None:
        """Nothing is given out that the log does not say."""
        for ended in self.driver.shard.take_ready_to_mark():
            (*_, last) = (
                each.value for each in self._log() if each.transactional_id == ended.transactional_id
            )
            assert last is not None
            assert last.state is (
                TransactionState.PREPARE_COMMIT if ended.committed else TransactionState.PREPARE_ABORT
            )
            assert (last.producer_id, last.producer_epoch) == (ended.producer_id, ended.producer_epoch)
            assert last.partitions == ended.partitions
            assert last.client_version == ended.transaction_version
            if ended.transaction_version == 2:
                marker = (ended.producer_id, ended.producer_epoch)
                assert self.results.setdefault(marker, ended.committed) == ended.committed
            self.asked.append(ended)

    @rule(number=st.integers(0, 3), count=st.integers(0, 3))
    def mark(self, number: int, count: int) -> None:
        """Some partitions get their markers; what all of them have may be completed, or not yet."""
        if not self.asked:
            return
        ended = self.asked.pop(number % len(self.asked))
        marked = sorted(ended.partitions)[:count]
        self.markers |= {(each, ended.producer_id, ended.producer_epoch) for each in marked}
        if on_marked(self.driver.shard, ended, marked):
            assert all(
                (each, ended.producer_id, ended.producer_epoch) in self.markers for each in ended.partitions
            )
            self.driver.complete(ended)
        else:
            assert not self.driver.complete(ended).records, "some partition has no marker, or it is complete"
            if len(marked) < len(ended.partitions):
                self.asked.append(ended)

    @rule()
    def resume(self) -> None:
        self.driver.resume()

    @rule(milliseconds=st.sampled_from([100, 10_000, 61_000, 700_000, 3_600_000]))
    def wait(self, milliseconds: int) -> None:
        self.driver.skip(milliseconds)

    @rule(version=st.sampled_from([0, 1, 2]))
    def upgrade(self, version: int) -> None:
        self.driver.version = version

    @rule(has_some=st.booleans())
    def producer_ids(self, has_some: bool) -> None:
        self.driver.has_producer_ids = has_some

    # -- what always holds ----------------------------------------------------------------------------------------

    def _log(self) -> list[TransactionRecord]:
        return [decode_record(key, value) for key, value in self.driver.log]

    @invariant()
    def the_log_is_sound(self) -> None:
        """Epochs only rise, no id comes back, and each state follows from the one before."""
        last: dict[str, Transaction] = {}
        used: dict[str, set[int]] = {name: set() for name in NAMES}
        for record in self._log():
            name, after = record.transactional_id, record.value
            before = last.pop(name, None)
            state = None if after is None else after.state
            if before is None or name != "a" or before.producer_id != PRODUCER or after is None:
                assert state in FOLLOWS[None if before is None else before.state]
            if after is None:
                continue
            if before is not None and after.producer_id == before.producer_id:
                assert after.producer_epoch >= before.producer_epoch
            elif before is not None:
                assert after.producer_epoch == 0
            if before is None or after.producer_id != before.producer_id:
                assert after.producer_id not in used[name]
                used[name].add(after.producer_id)
            if state in COMPLETED or state is TransactionState.EMPTY:
                assert not after.partitions
            last[name] = after

    @invariant()
    def the_log_says_it_all(self) -> None:
        shard = self.driver.shard
        replayed = TransactionShard(self.driver.config, lambda: 2)
        for record in self._log():
            replayed.replay(record)
        for name in NAMES:
            assert _stored(shard.committed(name)) == _stored(replayed.transactions.get(name))
        assert set(shard.committed_ids()) == set(replayed.transactions)
        prepared = {name for name, value in replayed.transactions.items() if value.state in PREPARED}
        assert set(shard.unmarked) == {
            name for name in prepared if _stored(shard.transactions[name]) == _stored(shard.committed(name))
        }
        for write in self.driver.on_their_way:
            for encoded in write.encoded:
                replayed.replay(decode_record(*encoded))
        assert {name: _stored(value) for name, value in shard.transactions.items()} == {
            name: _stored(value) for name, value in replayed.transactions.items()
        }
        assert set(shard.ongoing) == set(replayed.ongoing)

    def teardown(self) -> None:
        """Left alone, every transaction comes to its end, and every call to its answer."""
        self.driver.has_producer_ids = True
        for _ in range(3):
            self.settle()
            self.driver.skip(61_000)
        self.settle()
        self._hear()
        assert all(producer.call is None for producer in self.producers)
        for transaction in self.driver.shard.transactions.values():
            assert transaction.state in COMPLETED | {TransactionState.EMPTY}
        self.the_log_is_sound()
        self.the_log_says_it_all()


def _identity(answer: str) -> tuple[int, int]:
    producer_id, _, epoch = answer.partition("/")
    return int(producer_id), int(epoch)


def _stored(transaction: Transaction | None) -> Transaction | None:
    """But for what the log does not have: the last epoch, and in its version 0 the id before."""
    if transaction is None:
        return None
    return replace(transaction, last_producer_epoch=-1, previous_producer_id=-1)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=40, stateful_step_count=40)
