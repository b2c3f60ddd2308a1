"""What befalls the coordinator that owns the transactions, where another one owns the groups (`apart_plan`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from checks import image_of, is_only_about
from fault_kinds import CLIENTS
from history import Place
from transaction_history import Transaction, TransactionHistory
from transaction_plan import LATE_ANSWER, LATE_END, MARKER_OF_THE_DEPOSED, TWO_OWNERS, TransactionFault
from virtual_network import TO_CLIENT, TO_SERVER
from world import World

from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

CONTROLLERS: Final = ("controller-1", "controller-2")
"""Those that there may be."""

LOOK_SECONDS: Final = 0.005

WAIT_SECONDS_MAX: Final = 8.0
"""For another coordinator to own the transactions, or for what clients do."""

QUIET_SECONDS: Final = 0.1
"""In which what was asked for before is written, and told."""

ENDED_MIN: Final = 2
"""Transactions of one producer that the next owner ends, so that partitions have its markers."""


class ApartFaults:
    """Owner of which ways are cut, and to which gateway clients go."""

    def __init__(
        self,
        world: World,
        history: TransactionHistory,
        places: Sequence[Place],
        gateways: Sequence[str],
    ) -> None:
        """`places` are those that transactions write to, `gateways` addresses."""
        self._world = world
        self._history = history
        self._places = places
        self._gateways = gateways
        self._kinds: dict[str, Callable[[TransactionFault], Awaitable[None]]] = {
            LATE_END: self._late_end,
            LATE_ANSWER: self._late_answer,
            TWO_OWNERS: self._two_owners,
            MARKER_OF_THE_DEPOSED: self._marker_of_the_deposed,
        }

    def knows(self, fault: TransactionFault) -> bool:
        return fault.kind in self._kinds

    async def befall(self, fault: TransactionFault) -> None:
        """Raises TimeoutError where the moment for it does not come."""
        await self._kinds[fault.kind](fault)
        self._say(f"is over: {fault.kind}")

    async def _late_end(self, fault: TransactionFault) -> None:
        ends, groups = self._owner(TRANSACTION_STATE_TOPIC), self._owner(GROUP_METADATA_TOPIC)
        with self._world.network.standstill(ends, groups, TO_SERVER):
            await asyncio.sleep(fault.seconds)

    async def _late_answer(self, fault: TransactionFault) -> None:
        owner = self._owner(TRANSACTION_STATE_TOPIC)
        with self._world.network.standstill(self._leader(self._places[0]), owner, TO_CLIENT):
            await asyncio.sleep(fault.seconds)

    async def _two_owners(self, fault: TransactionFault) -> None:
        """Clients keep to the gateway that knows the new owner, until they all come to the other one. What the former
        owner writes would tell it that it is none: so nothing is on its way when clients reach it no more.
        """
        owner, (knows, island) = self._owner(TRANSACTION_STATE_TOPIC), self._gateways
        with self._unheard(owner, _host(island)), contextlib.ExitStack() as unreached:
            with self._cut((_host(each), CLIENTS) for each in self._gateways):
                await asyncio.sleep(QUIET_SECONDS)
                unreached.enter_context(self._cut([(owner, _host(knows))]))
            with self._all_at(knows):
                await self._until(lambda: self._owner(TRANSACTION_STATE_TOPIC) != owner)
                await self._until_ended()
            with self._all_at(island):
                await asyncio.sleep(fault.seconds)

    async def _marker_of_the_deposed(self, fault: TransactionFault) -> None:
        owner, place = self._owner(TRANSACTION_STATE_TOPIC), self._places[0]
        is_wanted = is_only_about(self._world, place.topic)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            late = await self._world.network.keep_back(owner, self._leader(place), "Append", is_wanted)
        self._say(f"a marker of {owner} is kept back")
        with self._unheard(owner):
            await self._until(lambda: self._owner(TRANSACTION_STATE_TOPIC) != owner)
            await self._until_ended()
        await self._until(lambda: owner in image_of(self._world).coordinators)
        await asyncio.sleep(fault.seconds)
        await self._until(self._is_open)
        self._say("it comes" if late.deliver() else "nobody is there for it")

    # -- how it is done -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _unheard(self, *names: str) -> Iterator[None]:
        """By the controllers, nor do they hear these."""
        self._say(f"{', '.join(names)} and the controllers do not hear one another")
        with self._cut((name, other) for name in names for other in CONTROLLERS):
            yield

    @contextlib.contextmanager
    def _cut(self, pairs: Iterable[tuple[str, str]]) -> Iterator[None]:
        """In both directions."""
        ways = [way for one, other in pairs for way in ((one, other), (other, one))]
        for way in ways:
            self._world.network.cut(*way)
        try:
            yield
        finally:
            for way in ways:
                self._world.network.mend(*way)

    @contextlib.contextmanager
    def _all_at(self, gateway: str) -> Iterator[None]:
        network = self._world.network
        network.balanced = dict.fromkeys(self._gateways, gateway)
        for each in self._gateways:
            network.break_some(CLIENTS, _host(each))
        self._say(f"all clients come to {gateway}")
        try:
            yield
        finally:
            network.balanced = {}

    async def _until_ended(self) -> None:
        """Until some producer that writes has ended several transactions from now on."""
        before = set(self._history.transactions)

        def has_ended() -> bool:
            ended = Counter(
                each.instance.name
                for name, each in self._history.transactions.items()
                if name not in before and self._writes(each) and (each.is_committed or each.is_aborted)
            )
            return max(ended.values(), default=0) >= ENDED_MIN

        await self._until(has_ended)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not is_so():
                await asyncio.sleep(LOOK_SECONDS)

    def _is_open(self) -> bool:
        """Whether a transaction has records in a partition, and its client goes on with it."""
        return any(
            self._writes(each) and not each.is_end_asked and not each.is_aborted
            for each in self._history.latest()
        )

    def _writes(self, transaction: Transaction) -> bool:
        return not transaction.acknowledged.keys().isdisjoint(self._places)

    def _owner(self, topic: str) -> str:
        known = image_of(self._world).topics.get(topic)
        return "" if known is None else known.partitions[0].coordinator_id

    def _leader(self, place: Place) -> str:
        return f"node-{image_of(self._world).topics[place.topic].partitions[place.partition].leader}"

    def _say(self, what: str) -> None:
        self._world.trace.say("fault", what)


def _host(address: str) -> str:
    return address.partition(":")[0]
