"""Copiers read what is committed of one topic and write it to another, with how far they are, in one transaction each
time (KIP-447): members of a group share the partitions.

Whatever happens to them, the copy has each record once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

from group_history import GroupHistory
from groups import (
    JOIN_AGAIN,
    LEAVE_GROUP,
    TENURE_SECONDS,
    TENURE_SECONDS_MAX,
    Interrupted,
    Member,
)
from history import History, Place
from kafka_client import RETRY_SECONDS, KafkaClient
from transaction_history import TransactionHistory
from transaction_readers import READ_COMMITTED, Found, TransactionReader
from transactional_client import Abortable, Fenced, TransactionalClient
from transactional_producers import TIMEOUTS_MS
from world import World

from barnabas.kernel.errors import ErrorCode

COPIERS: Final = "copiers"

LEAVES: Final = 0.5
ABORTS: Final = 0.2
VANISHES: Final = 0.15
"""How often a copier leaves the group in order, aborts what it has written, or is gone in the middle."""

UNDER_WAY_SECONDS_MAX: Final = 0.03
"""How long one that vanishes still commits: nobody hears of it."""

RECORDS_MAX: Final = 20
"""That it copies in one transaction."""


class _Gone(Exception):
    """It has vanished."""


def source_of(value: bytes) -> tuple[Place, int] | None:
    """Where a copied record was read."""
    fields = value.split(b":")
    if len(fields) < 6:
        return None
    return Place(fields[3].decode(), int(fields[4])), int(fields[5])


class Copier(Member):
    """One place in the group, taken by one member after another, each of which may have a producer of its own."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        histories: tuple[History, TransactionHistory, GroupHistory],
        sources: Sequence[Place],
        targets: Sequence[Place],
        chance: random.Random,
        *,
        new: float,
    ) -> None:
        """`new` is how likely a producer is of the newer generation."""
        super().__init__(world, client, histories[2], sources, chance, COPIERS)
        self._read, self._transactions, _ = histories
        self._targets = targets
        self._new = new
        self._producer: TransactionalClient | None = None

    async def _take_part(self) -> None:
        if self._producer is None:
            self._producer = self._new_producer()
            await self._or_gone(self._producer.initialize())
        try:
            await self._join()
            now = self._world.now
            ends_at = now + min(self._chance.expovariate(1 / TENURE_SECONDS), TENURE_SECONDS_MAX)
            while self._world.now < ends_at:
                await asyncio.sleep(self._chance.uniform(0.02, 0.1))
                await self._copy_or_go_back()
                await self._beat()
            await self._leave()
        except _Gone:
            await self._leave()
        except (Abortable, Interrupted):
            await self._abort()
            raise Interrupted("begins again") from None

    async def _copy_or_go_back(self) -> None:
        """Where a copy is aborted: to what is committed, as the coordinator says that it knows."""
        try:
            await self._copy()
        except Abortable:
            await self._abort()
            if self._producer is None or self._chance.random() < 0.3:
                raise
            if self._owned:
                self._owned = await self._committed(list(self._owned))

    async def _leave(self) -> None:
        """The group hears of it at once, or when the session is over."""
        member_id, self._member_id = self._member_id, ""
        if member_id and self._chance.random() < LEAVES:
            await self._ask(LEAVE_GROUP, 2, {"group_id": self.group, "member_id": member_id})

    def _new_producer(self) -> TransactionalClient:
        return TransactionalClient(
            self._world,
            self._client,
            self._transactions,
            self.name,
            self._chance,
            is_new=self._chance.random() < self._new,
            timeout_ms=self._chance.choice(TIMEOUTS_MS),
        )

    async def _or_gone(self, work: Any) -> None:
        """Raises Abortable; _Gone where the producer is none any more."""
        try:
            await work
        except Fenced as error:
            self._say(f"{error}")
            self._producer = None
            raise _Gone from error

    async def _abort(self) -> None:
        producer = self._producer
        if producer is None or producer.transaction is None:
            return
        try:
            await producer.end(committed=False)
        except (Abortable, Fenced) as error:
            self._say(f"cannot abort: {error}")
            self._producer = None

    async def _copy(self) -> None:
        """What is there of one of its partitions. Raises Abortable, _Gone."""
        if not self._owned:
            return
        place = self._chance.choice(list(self._owned))
        reader = TransactionReader(
            *(self._world, self._client, (self._read, self._transactions), place, self._chance),
            isolation=READ_COMMITTED,
        )
        reader.position = self._owned[place]
        fetched = await reader.read()
        if fetched is None:
            self._client.refresh()
            return
        records, position = fetched.records[:RECORDS_MAX], fetched.position
        if len(records) < len(fetched.records):
            position = records[-1].offset + 1
        if records:  # what was aborted need not be committed
            await self._or_gone(self._write(place, records, position))
        self._owned[place] = position

    async def _write(self, place: Place, records: Sequence[Found], position: int) -> None:
        producer = self._producer
        assert producer is not None, "it has a producer while it is a member"
        transaction = producer.begin()
        target = self._chance.choice(self._targets)
        values = [
            value + f"{place.topic}:{place.partition}:{each.offset}:".encode()
            for value, each in zip(transaction.new_values(len(records)), records, strict=True)
        ]
        await producer.send(target, values)
        what = self._chance.random()
        if what < VANISHES:
            self._producer = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0.0, UNDER_WAY_SECONDS_MAX)):
                    await producer.commit_offsets(
                        COPIERS, self._generation, self._member_id, {place: position}
                    )
                    await producer.end(committed=True)
            raise _Gone
        await producer.commit_offsets(COPIERS, self._generation, self._member_id, {place: position})
        if what < VANISHES + ABORTS:
            raise Abortable("it was asked to")
        await producer.end(committed=True)

    async def _committed(self, places: Sequence[Place]) -> dict[Place, int]:
        """What is committed of each, once nothing is pending there (KIP-447)."""
        while True:
            known = {place: self._transactions.committed_offset(place) for place in places}
            found = await self._stable(places)
            self._transactions.on_told(known, found, self.name)
            if len(found) == len(places):
                self._say(f"goes on at {[(place.partition, offset) for place, offset in found.items()]}")
                return found
            await asyncio.sleep(self._chance.uniform(0.5, 1.0) * RETRY_SECONDS)
            await self._beat()

    def _check(self, api_key: int, code: ErrorCode) -> None:
        if code in JOIN_AGAIN:
            self._owned = {}
        super()._check(api_key, code)
