"""What befalls a coordinator of transactions at one moment: what it writes, or tells a partition, is late or lost.

Which coordinator that is, is known when it happens: whoever owns the transactions then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from checks import image_of
from history import Place
from world import World

from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

LATE_MARKER: Final = "late marker"
"""A marker comes late: by then it has been sent again, and the next transaction is open perhaps."""

MARKER_OF_A_FORMER: Final = "marker of a former coordinator"
"""A marker comes late: whoever sent it was killed, and another one has sent it again."""

LOST_DECISION: Final = "lost decision"
"""What the coordinator writes to its log never gets there, and it is killed."""

WAIT_SECONDS_MAX: Final = 2.0
"""For something to be sent."""

DOWN_SECONDS: Final = 0.1

StartAgain = Callable[[str, float], Awaitable[bool]]
"""Kills the coordinator of this name, and starts it after so many seconds, where that may be (`faults`)."""


@dataclass(frozen=True, slots=True)
class TransactionFault:
    """One of them."""

    at: float
    kind: str
    seconds: float

    def __str__(self) -> str:
        return f"at {self.at:.2f} s, {self.seconds:.2f} s: {self.kind}"


def about_transactions(chance: random.Random, *, are_all_new: bool) -> list[TransactionFault]:
    """A marker that is only late does no harm where each transaction has an epoch of its own (KIP-890)."""
    kinds = [MARKER_OF_A_FORMER, LOST_DECISION] + ([LATE_MARKER] * 3 if are_all_new else [])
    faults, at = [], chance.uniform(0.5, 2.0)
    for _ in range(chance.choice((0, 1, 2, 3))):
        kind = chance.choice(kinds)
        seconds = chance.choice((0.2, 0.4, 0.8)) if kind == LATE_MARKER else chance.uniform(0.6, 2.0)
        faults.append(TransactionFault(at, kind, seconds))
        at += chance.uniform(0.5, 1.5)
    return faults


class TransactionFaults:
    """Owner of what is kept back."""

    def __init__(self, world: World, start_again: StartAgain, places: Sequence[Place]) -> None:
        self._world = world
        self._start_again = start_again
        self._places = places
        self._chance = world.chance_of("faults of transactions")

    async def run(self, faults: Sequence[TransactionFault], begins_at: float) -> None:
        for fault in faults:
            await asyncio.sleep(max(0.0, begins_at + fault.at - self._world.now))
            self._say(str(fault))
            with contextlib.suppress(TimeoutError):
                await self._befall(fault)

    async def _befall(self, fault: TransactionFault) -> None:
        """Raises TimeoutError where nothing is sent."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not all(self._way(fault)):
                await asyncio.sleep(0.02)
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
            self._say("it comes" if late.deliver() else "nobody is there for it")

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
