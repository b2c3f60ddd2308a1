"""What clients of transactions did and were told: what of it may be read, and what must be.

Transactions are told apart by their values: `writer-0.2:5:3:` is the fourth record of the fifth transaction of the
second instance that came under the transactional id `writer-0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from history import Judge, Place


@dataclass(slots=True, eq=False)
class Transaction:
    """One of them, as its client knows it."""

    instance: Instance
    number: int
    sent: dict[Place, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    """By offset."""
    offsets: dict[Place, int] = field(default_factory=dict)
    """Of its group, which are part of it."""
    is_end_asked: bool = False
    is_commit_asked: bool = False
    is_committed: bool = False
    """Whether that was answered."""
    is_aborted: bool = False
    """Whether it cannot be committed any more, as its client was told."""
    seen: str = ""
    """What a consumer read of it that reads what is committed."""
    values: int = 0

    def __str__(self) -> str:
        return f"{self.instance.name}:{self.number}"

    @property
    def may_be_committed(self) -> bool:
        return self.is_commit_asked and not self.is_aborted

    def new_values(self, count: int, padding: bytes = b"") -> list[bytes]:
        first, self.values = self.values, self.values + count
        return [f"{self}:{number}:".encode() + padding for number in range(first, self.values)]


@dataclass(slots=True, eq=False)
class Instance:
    """One producer under a transactional id, until another one comes under it."""

    transactional_id: str
    number: int
    is_fenced: bool = False
    """Whether a later one was told its id and epoch."""
    may_be_fenced: bool = False
    """Whether some request for a later epoch of the id may have been heard, or may be yet."""

    @property
    def name(self) -> str:
        return f"{self.transactional_id}.{self.number}"


class Read(NamedTuple):
    """A record that a consumer read that reads what is committed."""

    offset: int
    transaction: Transaction


class TransactionHistory:
    """Owner of what was done in transactions, told, and read."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.transactions: dict[str, Transaction] = {}
        self._latest: dict[str, Transaction] = {}
        self.instances: dict[str, list[Instance]] = {}
        """By transactional id, in their order."""
        self.unheard: set[str] = set()
        """Ids for which an epoch was asked without an answer: the request may yet be heard, and fence who is there."""
        self.last_ends: dict[str, bool | None] = {}
        """How the last transaction of an id ended, as its client was told: None where something was asked since."""
        self.committed: dict[Place, dict[bytes, Read]] = {}
        """What was read of each partition as committed."""
        self._stable: dict[tuple[Place, int], int] = {}
        self._offsets: dict[Place, int] = {}
        """The highest that were committed, of the one group."""
        self._possible: dict[Place, dict[int, Transaction]] = {}

    # -- producers ----------------------------------------------------------------------------------------------

    def new_instance(self, transactional_id: str) -> Instance:
        """Somebody asks for the next epoch of the id: those before may be fenced at any time."""
        known = self.instances.setdefault(transactional_id, [])
        for each in known:
            each.may_be_fenced = True
        known.append(
            Instance(transactional_id, len(known) + 1, may_be_fenced=transactional_id in self.unheard)
        )
        self.last_ends[transactional_id] = None
        return known[-1]

    def on_unheard(self, instance: Instance) -> None:
        """Nobody knows what became of its request for an epoch."""
        self.unheard.add(instance.transactional_id)
        for each in self.instances[instance.transactional_id]:
            each.may_be_fenced = True

    def on_initialized(self, instance: Instance) -> None:
        """It was told its id and epoch."""
        for each in self.instances[instance.transactional_id]:
            if each.number < instance.number:
                each.is_fenced = True

    def begin(self, instance: Instance, number: int) -> Transaction:
        begun = Transaction(instance, number)
        self.transactions[str(begun)] = begun
        self._latest[instance.transactional_id] = begun
        return begun

    def latest(self) -> Iterable[Transaction]:
        """The last that began under each transactional id."""
        return self._latest.values()

    def on_sent(self, transaction: Transaction, place: Place, values: list[bytes]) -> None:
        transaction.sent.setdefault(place, []).extend(values)
        self._on_asked(transaction.instance)

    def _on_asked(self, instance: Instance) -> None:
        if not instance.is_fenced:
            self.last_ends[instance.transactional_id] = None

    def on_acknowledged(
        self, transaction: Transaction, place: Place, offset: int, values: list[bytes], *, was_fenced: bool
    ) -> None:
        """`was_fenced` before it was sent the first time."""
        if was_fenced:
            self._judge.violate(
                f"ZOMBIE: {transaction} had a batch taken by {place}, sent when its instance was fenced"
            )
        if offset >= 0:
            there = transaction.acknowledged.setdefault(place, {})
            there.update((offset + number, value) for number, value in enumerate(values))

    def on_end_asked(self, transaction: Transaction, *, committed: bool) -> None:
        self._on_asked(transaction.instance)
        transaction.is_end_asked = True
        if committed:
            transaction.is_commit_asked = True
            for place, offset in transaction.offsets.items():
                self._possible.setdefault(place, {})[offset] = transaction

    def on_committed(self, transaction: Transaction, *, was_fenced: bool) -> None:
        """It was told so; `was_fenced` before it asked the first time."""
        if was_fenced:
            self._judge.violate(f"ZOMBIE: {transaction} was committed when its instance was fenced")
        transaction.is_committed = True
        for place, offset in transaction.offsets.items():
            self._offsets[place] = max(self._offsets.get(place, 0), offset)
        if not transaction.instance.may_be_fenced:
            self.last_ends[transaction.instance.transactional_id] = True

    def on_aborted(self, transaction: Transaction, *, is_told: bool = True) -> None:
        """It was told so, or that its instance is fenced before it had asked for a commit."""
        transaction.is_aborted = True
        if transaction.seen:
            self._judge.violate(f"ABORTED READ: {transaction.seen}, and {transaction} is aborted")
        if is_told and not transaction.instance.may_be_fenced:
            self.last_ends[transaction.instance.transactional_id] = False

    # -- consumers ----------------------------------------------------------------------------------------------

    def of_value(self, value: bytes) -> Transaction | None:
        return self.transactions.get(b":".join(value.split(b":")[:2]).decode())

    def on_read(self, place: Place, offset: int, value: bytes, consumer: str) -> None:
        """By a consumer that reads what is committed."""
        transaction = self.of_value(value)
        if transaction is None:
            self._judge.violate(f"{place}: {consumer} read {value!r} at {offset}, which nobody sent")
            return
        what = f"{consumer} read {value!r} at {offset} of {place}"
        if not transaction.may_be_committed:
            self._judge.violate(f"ABORTED READ: {what}, and {transaction} was not committed")
        transaction.seen = transaction.seen or what
        known = self.committed.setdefault(place, {}).setdefault(value, Read(offset, transaction))
        if known.offset != offset:
            self._judge.violate(f"DOUBLED: {what}, and it is at {known.offset} as well")

    def stable_in(self, place: Place, leader_epoch: int) -> int:
        """The highest last stable offset that was told in that epoch."""
        return self._stable.get((place, leader_epoch), 0)

    def on_stable(self, place: Place, leader_epoch: int, known: int, offset: int, consumer: str) -> None:
        """With what a fetch was answered; `known` was the highest in the epoch before it was sent."""
        if offset < known:
            self._judge.violate(
                f"{place}: {consumer} was told the last stable offset {offset} in epoch {leader_epoch}, which was "
                f"{known} before"
            )
        self._stable[place, leader_epoch] = max(self.stable_in(place, leader_epoch), offset)

    # -- the group's offsets ------------------------------------------------------------------------------------

    def committed_offset(self, place: Place) -> int:
        """The highest that was acknowledged."""
        return self._offsets.get(place, 0)

    def on_told(self, known: Mapping[Place, int], told: Mapping[Place, int], who: str) -> None:
        """What somebody was told that is committed; `known` was before he asked."""
        for place, offset in told.items():
            if offset < known.get(place, 0):
                self._judge.violate(
                    f"LOST: {who} was told that {offset} is committed of {place}, {known[place]} was acknowledged"
                )
            self.check_offset(place, offset, who)

    def check_offset(self, place: Place, offset: int, who: str) -> None:
        """Whether a commit of the offset was asked for."""
        transaction = self._possible.get(place, {}).get(offset)
        if offset and (transaction is None or not transaction.may_be_committed):
            self._judge.violate(
                f"{who} was told that {offset} is committed of {place}, and {transaction} was not"
            )


def instances_in_order(transactions: Iterable[Transaction]) -> list[Transaction]:
    """Those of one transactional id as they follow one another."""
    return sorted(transactions, key=lambda each: (each.instance.number, each.number))
