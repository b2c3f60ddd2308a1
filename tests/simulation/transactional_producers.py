"""Producers that write in transactions: they commit, abort, vanish, and come back under the same id, so that the former
one is a zombie that goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

from history import Place
from kafka_client import KafkaClient
from transaction_history import TransactionHistory
from transactional_client import Abortable, Fenced, TransactionalClient
from world import World

PAUSE_SECONDS: Final = 0.1
"""Between what a producer sends at a time, and between its transactions, on average."""

TIMEOUTS_MS: Final = (1_200, 2_500, 5_000)
"""transaction.timeout.ms."""

STEADY_TIMEOUT_MS: Final = 30_000
"""Of a producer that nothing is to end."""

ABORTS: Final = 0.25
VANISHES: Final = 0.1
IS_FOLLOWED: Final = 0.12
"""How often a transaction is aborted, left open, or left to a zombie while another instance comes."""
IDLE_AND_FOLLOWED: Final = 0.08
"""How often another instance comes between two of its transactions."""

DAWDLES: Final = 0.05
IMPATIENCE: Final = 0.15
"""How often a producer does nothing for long, and waits for an answer only for a moment."""

AWAY_SECONDS_MAX: Final = 2.5

ZOMBIE_SENDS_MAX: Final = 4


class Writer:
    """One transactional id, under which one instance follows another."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: TransactionHistory,
        places: Sequence[Place],
        chance: random.Random,
        create_task: Callable[..., asyncio.Task[None]],
        *,
        new: float,
        is_steady: bool,
    ) -> None:
        """`new` is how likely an instance is of the newer generation; `is_steady`: only one ever comes."""
        self.name = client.name
        self.is_done = False
        self._world = world
        self._client = client
        self._history = history
        self._places = places
        self._chance = chance
        self._create_task = create_task
        self._new = new
        self._fickleness = 0.0 if is_steady else 1.0
        self._timeouts_ms = (STEADY_TIMEOUT_MS,) if is_steady else TIMEOUTS_MS

    async def run(self, until: float) -> None:
        """Write until then, and end what is open."""
        while self._world.now < until:
            producer = TransactionalClient(
                self._world,
                self._client,
                self._history,
                self.name,
                self._chance,
                is_new=self._chance.random() < self._new,
                timeout_ms=self._chance.choice(self._timeouts_ms),
            )
            try:
                await self._be(producer, until)
            except Fenced as error:
                self._world.trace.say(self.name, f"{producer.instance.name}: {error}")
        self.is_done = True

    async def _be(self, producer: TransactionalClient, until: float) -> None:
        """One instance, until it is over. Raises Fenced."""
        await producer.initialize()
        while self._world.now < until:
            if self._chance.random() < IDLE_AND_FOLLOWED * self._fickleness:
                self._create_task(self._be_a_zombie(producer), name=f"zombie of {self.name}")
                return
            producer.begin()
            try:
                for _ in range(self._chance.choice((1, 2, 3))):
                    await self._send_or_give_up(producer)
                    await self._pause()
                what = self._chance.random()
                if what < VANISHES * self._fickleness:
                    await self._vanish(producer)
                    await asyncio.sleep(self._chance.uniform(0.0, AWAY_SECONDS_MAX))
                    return
                if what < (VANISHES + IS_FOLLOWED) * self._fickleness:
                    self._create_task(self._be_a_zombie(producer), name=f"zombie of {self.name}")
                    return
                await producer.end(committed=self._chance.random() >= ABORTS)
            except Abortable as error:
                self._world.trace.say(self.name, f"{producer.transaction}: {error}")
                await self._abort(producer)
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_SECONDS))

    async def _send(self, producer: TransactionalClient) -> None:
        transaction = producer.transaction
        assert transaction is not None, "it was begun"
        values = transaction.new_values(self._chance.randint(1, 3), bytes(self._chance.choice((5, 300))))
        await producer.send(self._chance.choice(self._places), values)

    async def _pause(self) -> None:
        dawdles = self._chance.random() < DAWDLES
        await asyncio.sleep(
            self._chance.uniform(1.0, 3.0) if dawdles else self._chance.expovariate(1 / PAUSE_SECONDS)
        )

    async def _send_or_give_up(self, producer: TransactionalClient) -> None:
        """Some do not wait for long, as by delivery.timeout.ms. Raises Abortable."""
        try:
            async with asyncio.timeout(
                self._chance.uniform(0.01, 0.3)
                if self._chance.random() < IMPATIENCE * self._fickleness
                else None
            ):
                await self._send(producer)
        except TimeoutError as error:
            raise Abortable("it takes too long") from error

    async def _vanish(self, producer: TransactionalClient) -> None:
        """Perhaps with a commit under way, of which nobody hears."""
        if self._chance.random() < 0.5:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0.0, 0.02)):
                    await producer.end(committed=True)

    async def _abort(self, producer: TransactionalClient) -> None:
        """Raises Fenced, also where it cannot be aborted: the next instance will do."""
        if producer.transaction is None:
            return
        try:
            await producer.end(committed=False)
        except Abortable as error:
            raise Fenced(str(error)) from error

    async def _be_a_zombie(self, producer: TransactionalClient) -> None:
        """It does not know that another one has come, or comes: writes on, and commits."""
        try:
            if producer.transaction is None:
                await asyncio.sleep(self._chance.uniform(0.0, 0.5))
                producer.begin()
            for _ in range(self._chance.choice((0, 0, 1, ZOMBIE_SENDS_MAX))):
                await asyncio.sleep(self._chance.expovariate(1 / PAUSE_SECONDS))
                await self._send(producer)
            await producer.end(committed=True)
        except (Fenced, Abortable) as error:
            self._world.trace.say(self.name, f"zombie {producer.instance.name}: {error}")
