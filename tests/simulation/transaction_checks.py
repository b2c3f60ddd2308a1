"""What holds of transactional topics, of `__transaction_state` and of the offsets in transactions, in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from checks import image_of
from copiers import COPIERS, source_of
from history import History, Place
from machines import CoordinatingMachine, NodeMachine
from transaction_history import Transaction, TransactionHistory
from transaction_views import View, read_view
from world import World

from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.storage.replica.replica import Replica


def replicas_of(world: World, nodes: Sequence[NodeMachine], place: Place) -> Iterator[tuple[str, Replica]]:
    """Those in sync, the leader's first."""
    image = image_of(world)
    topic = image.topics.get(place.topic)
    if topic is None:
        return
    record = topic.partitions[place.partition]
    by_id = {node.node_id: node for node in nodes}
    for node_id in sorted(record.isr, key=lambda each: each != record.leader):
        node = by_id[node_id]
        replica = None if node.replicas is None else node.replicas.find(record.topic_id, place.partition)
        if replica is not None and replica.log is not None:
            yield node.name, replica


def undecided(world: World, nodes: Sequence[NodeMachine], places: Iterable[Place]) -> list[str]:
    """Where the last stable offset stays behind the log's end."""
    found = []
    for place in places:
        for name, replica in replicas_of(world, nodes, place):
            opened = replica.log
            assert opened is not None, "only those with logs are here"
            stable = opened.last_stable_offset(replica.high_watermark)
            if stable < opened.log_end_offset:
                found.append(f"{place} at {name} is stable up to {stable} of {opened.log_end_offset}")
    return found


def shard_of(
    world: World, coordinators: Mapping[str, CoordinatingMachine], topic: str
) -> TransactionShard | GroupShard | None:
    """Of the one partition, at the coordinator that owns it."""
    known = image_of(world).topics.get(topic)
    owner = coordinators.get(known.partitions[0].coordinator_id) if known is not None else None
    made = None
    if owner is not None:
        made = owner.coordinator if topic == GROUP_METADATA_TOPIC else owner.transactions
    runtime = None if made is None else made.partitions.runtime(0)
    return runtime.shard if runtime is not None and runtime.is_loaded else None


def unended(world: World, coordinators: Mapping[str, CoordinatingMachine]) -> list[str]:
    """Transactions that are open or not told to all, and offsets that are pending."""
    shard = shard_of(world, coordinators, TRANSACTION_STATE_TOPIC)
    if not isinstance(shard, TransactionShard):
        return ["nobody owns the transactions"]
    found = [
        f"{name} is {each.state}"
        for name, each in shard.transactions.items()
        if each.state in PREPARED or each.state is TransactionState.ONGOING
    ]
    groups = shard_of(world, coordinators, GROUP_METADATA_TOPIC)
    if not isinstance(groups, GroupShard):
        return [*found, "nobody owns the group of copiers"]
    return [*found, f"{len(groups.pending)} offsets are pending"] if len(groups.pending) else found


def uncopied(history: TransactionHistory, sources: Iterable[Place], targets: Iterable[Place]) -> list[str]:
    """How many committed records have no copy yet."""
    wanted = {(place, read.offset) for place in sources for read in history.committed.get(place, {}).values()}
    copied = {source_of(value) for place in targets for value in history.committed.get(place, {})}
    missing = wanted - copied
    return [f"{len(missing)} of {len(wanted)} records are not copied"] if missing else []


class TransactionChecks:
    """Holds the history against the logs and the coordinators. Owner of what each log was found to say."""

    def __init__(
        self,
        world: World,
        histories: tuple[History, TransactionHistory],
        nodes: Sequence[NodeMachine],
        coordinators: Mapping[str, CoordinatingMachine],
    ) -> None:
        self._world = world
        self._reads, self._history = histories
        self._nodes = nodes
        self._coordinators = coordinators
        self._views: dict[Place, View] = {}
        """Of the leaders' logs."""

    def check(self, sources: Sequence[Place], targets: Sequence[Place]) -> None:
        for place in (*sources, *targets):
            self._check_replicas(place)
        for transaction in self._history.transactions.values():
            self._check_transaction(transaction)
        self._check_copies(sources, targets)
        self._check_states()
        self._check_offsets(sources)

    def _check_replicas(self, place: Place) -> None:
        first: View | None = None
        for name, replica in replicas_of(self._world, self._nodes, place):
            view = read_view(self._world, f"{place} at {name}", replica)
            self._check_index(place, name, replica, view)
            self._check_acknowledged(place, name, view)
            if view.undecided:
                self._world.violate(f"HANGING: {place} at {name} has {view.first_offsets} open")
            if first is None:
                first = self._views[place] = view
            elif (view.values, view.committed, view.aborted) != (
                first.values,
                first.committed,
                first.aborted,
            ):
                self._world.violate(f"{place}: {name} has other transactions than the leader")
        if first is not None:
            self._check_reads(place, first)
            self._check_order(place, first)

    def _check_index(self, place: Place, name: str, replica: Replica, view: View) -> None:
        opened = replica.log
        assert opened is not None, "only those with logs are here"
        known = opened.aborted_transactions(opened.log_start_offset, opened.log_end_offset)
        indexed = sorted((each.producer_id, each.first_offset, each.last_offset) for each in known)
        aborted = sorted(each[:3] for each in view.ended if not each.is_committed)
        if indexed != aborted:
            self._world.violate(f"{place} at {name}: aborted are {aborted}, its index has {indexed}")

    def _check_acknowledged(self, place: Place, name: str, view: View) -> None:
        for transaction in self._history.transactions.values():
            for offset, value in transaction.acknowledged.get(place, {}).items():
                found = view.values.get(offset)
                if found != value:
                    self._world.violate(
                        f"LOST: {value!r} was acknowledged at {offset}, {place} at {name} has {found!r}"
                    )

    def _check_reads(self, place: Place, view: View) -> None:
        for offset, value in self._reads.read.get(place, {}).items():
            if view.values.get(offset) != value:
                self._world.violate(f"READ AND LOST: {value!r} was read at {offset} of {place}")
        read = {value: each.offset for value, each in self._history.committed.get(place, {}).items()}
        if read != view.committed:
            differ = sorted(read.items() ^ view.committed.items(), key=lambda each: each[1])
            self._world.violate(
                f"{place}: {differ[:5]} were read as committed, or are, and not the other way"
            )

    def _check_order(self, place: Place, view: View) -> None:
        last: dict[str, tuple[int, int]] = {}
        for offset, value in view.values.items():
            name, transaction, number = value.decode().split(":")[:3]
            now = int(transaction), int(number)
            if now <= last.get(name, (0, 0)):
                self._world.violate(f"OUT OF ORDER: {place}: {name} has {now} at {offset} after {last[name]}")
            last[name] = now

    def _check_transaction(self, transaction: Transaction) -> None:
        committed, others = [], []
        for place, values in transaction.sent.items():
            view = self._views.get(place, View())
            for value in values:
                (committed if value in view.committed else others).append((place, value))
        if committed and not transaction.may_be_committed:
            self._world.violate(f"ABORTED: {transaction} is not to be committed, {committed[0]} is")
        if committed and others:
            self._world.violate(
                f"TORN: of {transaction}, {committed[0]} is committed, and {others[0]} is not"
            )
        if others and transaction.is_committed:
            self._world.violate(f"LOST: {transaction} was committed, and {others[0]} is not")

    def _check_copies(self, sources: Iterable[Place], targets: Iterable[Place]) -> None:
        wanted = {(place, offset) for place in sources for offset in self._views[place].committed.values()}
        copied = [source_of(value) for place in targets for value in self._views[place].committed]
        doubled = {each for each in copied if copied.count(each) > 1}
        if doubled:
            self._world.violate(f"DOUBLED: {sorted(map(str, doubled))[:5]} are copied more than once")
        if set(copied) != wanted:
            differ = sorted(map(str, set(copied) ^ wanted))
            self._world.violate(f"{differ[:5]} are copied and not committed, or committed and not copied")

    def _check_states(self) -> None:
        """What `__transaction_state` says, and what clients were told and the logs have."""
        shard = shard_of(self._world, self._coordinators, TRANSACTION_STATE_TOPIC)
        assert isinstance(shard, TransactionShard), "somebody owns it by now"
        states = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
        for name, end in self._history.last_ends.items():
            known = shard.transactions.get(name)
            if end is not None and (known is None or known.state is not states[end]):
                self._world.violate(f"{name} was told {states[end]}, and is {known}")
        epochs = {each.producer_id: each.producer_epoch for each in shard.transactions.values()}
        for place, view in self._views.items():
            for producer_id, epoch in view.epochs.items():
                if epoch > epochs.get(producer_id, epoch):
                    self._world.violate(
                        f"{place} has epoch {epoch} of producer {producer_id}, which is at {epochs[producer_id]}"
                    )

    def _check_offsets(self, sources: Iterable[Place]) -> None:
        shard = shard_of(self._world, self._coordinators, GROUP_METADATA_TOPIC)
        assert isinstance(shard, GroupShard), "somebody owns it by now"
        committed = shard.committed_offsets(COPIERS)
        for place in sources:
            value = committed.get(place.topic, {}).get(place.partition)
            offset = 0 if value is None else value.offset
            last = max(self._views[place].committed.values(), default=-1)
            if offset <= last:
                self._world.violate(f"{place} is copied up to {last}, and {offset} is committed of it")
            self._history.check_offset(place, offset, "the coordinator")
