"""What befalls a coordinator of transactions at one moment: what it writes, or tells a partition, is late or lost.

Which coordinator that is, is known when it happens: whoever owns the transactions then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from apart_faults import ApartFaults
from checks import image_of
from history import Place
from transaction_history import TransactionHistory
from transaction_plan import LATE_MARKER, LOST_DECISION, TransactionFault
from world import World

from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

WAIT_SECONDS_MAX: Final = 2.0
"""For something to be sent, or for the moment that an aimed fault waits for."""

DOWN_SECONDS: Final = 0.1

LOOK_SECONDS: Final = 0.005

StartAgain = Callable[[str, float], Awaitable[bool]]
"""Kills the coordinator of this name, and starts it after so many seconds, where that may be (`faults`)."""


class TransactionFaults:
    """Owner of what is kept back."""

    def __init__(
        self,
        world: World,
        start_again: StartAgain,
        history: TransactionHistory,
        places: Sequence[Place],
        gateways: Sequence[str],
    ) -> None:
        """`gateways` are addresses."""
        self._apart = ApartFaults(world, history, places, gateways)
        self._world = world
        self._start_again = start_again
        self._history = history
        self._places = places
        self._chance = world.chance_of("faults of transactions")

    async def run(self, faults: Sequence[TransactionFault], begins_at: float) -> None:
        for fault in faults:
            await asyncio.sleep(max(0.0, begins_at + fault.at - self._world.now))
            self._say(str(fault))
            with contextlib.suppress(TimeoutError):
                await self._befall(fault)

    async def _befall(self, fault: TransactionFault) -> None:
        """Raises TimeoutError where nothing is sent, or the moment does not come."""
        if self._apart.knows(fault):
            await self._apart.befall(fault)
            return
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self._until(lambda: all(self._way(fault)) and self._is_worst_for(fault))
            owner, node = self._way(fault)
            if owner == node:  # nothing is on its way within a process
                await self._start_again(owner, DOWN_SECONDS)
                return
            late = await self._world.network.keep_back(owner, node, "Append")
        self._say(f"what {owner} sends to {node} is kept back")
        if fault.kind != LATE_MARKER:
            await self._start_again(owner, DOWN_SECONDS)
        await asyncio.sleep(fault.seconds)
        if fault.kind != LOST_DECISION:
            if fault.is_aimed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_SECONDS_MAX):
                        await self._until(self._is_open)
            self._say("it comes" if late.deliver() else "nobody is there for it")

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(LOOK_SECONDS)

    def _is_worst_for(self, fault: TransactionFault) -> bool:
        """Whether it is the moment to keep something back: a decision, when a commit has not been answered."""
        if not fault.is_aimed or fault.kind != LOST_DECISION:
            return True
        return any(each.is_commit_asked and not each.is_committed for each in self._history.latest())

    def _is_open(self) -> bool:
        """Whether a transaction has records in a partition, and its client goes on with it."""
        return any(
            not each.is_end_asked
            and not each.is_aborted
            and not each.acknowledged.keys().isdisjoint(self._places)
            for each in self._history.latest()
        )

    def _way(self, fault: TransactionFault) -> tuple[str, str]:
        """From the coordinator that owns the transactions to the node that it speaks to."""
        topics = image_of(self._world).topics
        state = topics.get(TRANSACTION_STATE_TOPIC)
        if state is None or not state.partitions[0].coordinator_id:
            return "", ""
        owner = state.partitions[0].coordinator_id
        if fault.kind == LOST_DECISION:
            return owner, self._name(state.partitions[0].leader)
        groups = topics.get(GROUP_METADATA_TOPIC)
        others = {state.partitions[0].leader, groups.partitions[0].leader if groups is not None else -1}
        leaders = [topics[each.topic].partitions[each.partition].leader for each in self._places]
        leaders = [each for each in leaders if self._name(each) != owner] or leaders
        # Of what goes to a node that leads none of the coordinators' topics it is known that it is a marker.
        return owner, self._name(next((each for each in leaders if each not in others), leaders[0]))

    def _name(self, leader: int) -> str:
        return f"node-{leader}" if leader >= 0 else ""

    def _say(self, what: str) -> None:
        self._world.trace.say("fault", what)
