"""Whatever befalls them, the batches of idempotent producers come to each log in their order, and all of them come.

Chance decides, from a seed, what producers send and what becomes of it at the nodes. Then all is well, and what is not
acknowledged yet has to be soon. A seed that fails shows what happened under it, and how to have it again
(`PRODUCE_ORDER_FIRST_SEED`: the first of the fresh ones).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from produce_connection import EITHER_WAY, Preparing, settle
from produce_order_clients import Producers
from produce_order_nodes import Nodes, Trace

from barnabas.gateway.clients.resends import Resends
from barnabas.gateway.clients.sequence_gaps import SequenceGaps
from barnabas.gateway.clients.unsettled import Unsettled

ROOT: Final = Path(__file__).resolve().parents[4]

pytestmark = pytest.mark.usefixtures("time_jumps")

SEEDS: Final = (*range(150), 235, 674, 812, 840, 865, 984, 998)
"""Those that are always run: the last ones find what few do, that a batch overtakes one that failed long before."""

FRESH_SEEDS: Final = 10

FIRST_FRESH_SEED: Final = int(
    os.environ.get("PRODUCE_ORDER_FIRST_SEED") or random.SystemRandom().randrange(1_000_000_000)
)
"""Another one in each run."""

PARTITIONS: Final = (1, 1, 1, 2, 3)
"""What a seed has. With one, most is sent ahead; with more, requests are refused in part."""

STEPS: Final = 160

ROUNDS_MAX: Final = 100
"""Until all is acknowledged once nothing fails any more; it takes up to 40."""

SECONDS: Final = (0.021, 0.1, 0.3, 0.51, 1.5)
"""What passes at a time: as long as what the gateway waits for, or a little longer."""


class World:
    """Owns one seed's run: producers, a connection to a gateway, and nodes."""

    def __init__(self, seed: int, *, forwards: bool) -> None:
        self.trace = Trace()
        self._chance = random.Random(seed)
        self._run = Preparing(prepares=False, forwards=forwards)
        partitions = self._chance.choice(PARTITIONS)
        self._nodes = Nodes(self._run, self._chance, self.trace, partitions)
        self._producers = Producers(self._run, self._chance, self.trace, partitions)
        self._steps: dict[Callable[[], Any], int] = {
            self._producers.send_any: 37,
            self._nodes.answer_any: 28,
            self._nodes.move_any: 11,
            self._nodes.be_heard_of: 13,
            self._nodes.stall_any: 4,
            self._nodes.break_any: 3,
            self._nodes.fill_any: 2,
        }
        """How often each happens, of a hundred times; else time passes."""

    async def live(self) -> None:
        try:
            await self._fail_often()
            if not self.trace.faults:
                await self._be_well()
        finally:
            self._run.connection.connection_lost(None)
            await settle()

    async def _fail_often(self) -> None:
        for _ in range(STEPS):
            self._producers.start_others()
            if self._chance.random() < 0.04:
                seconds = self._chance.choice(SECONDS)
                self.trace.note(f"  {seconds} seconds pass")
                await asyncio.sleep(seconds)
            else:
                (step,) = self._chance.choices(list(self._steps), list(self._steps.values()))
                step()
            if await self._is_at_fault():
                return

    async def _be_well(self) -> None:
        self._nodes.heal()
        for _ in range(ROUNDS_MAX):
            if await self._is_at_fault() or self._producers.are_done:
                return
            sends = self._producers.send_any()
            await settle()
            self._nodes.answer_all()
            if not sends:
                await asyncio.sleep(0.05)
        self.trace.blame("not everything is acknowledged")

    async def _is_at_fault(self) -> bool:
        await settle()
        self._producers.read(self._nodes.logs)
        if self._run.transport.closed:
            self.trace.blame("the connection is closed")
        return bool(self.trace.faults)


async def faults(seed: int, *, forwards: bool) -> str:
    """What must not happen and does under a seed, after what led to it; nothing if all is well."""
    world = World(seed, forwards=forwards)
    await world.live()
    if not world.trace.faults:
        return ""
    way = "as they are read" if forwards else "in tasks"
    again = f"{Path(__file__).relative_to(ROOT)}::test_fresh_seeds_keep_it_too[0-{way}]"
    return "\n".join([*world.trace.lines, f"PRODUCE_ORDER_FIRST_SEED={seed} pytest '{again}'"])


@EITHER_WAY
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_order_is_kept(seed: int, forwards: bool) -> None:
    assert not (found := await faults(seed, forwards=forwards)), found


@EITHER_WAY
@pytest.mark.parametrize("number", range(FRESH_SEEDS))
async def test_fresh_seeds_keep_it_too(number: int, forwards: bool) -> None:
    """The seeds are not in the names of the tests: those are the same in each process that runs some of them."""
    assert not (found := await faults(FIRST_FRESH_SEED + number, forwards=forwards)), found


async def test_a_seed_is_the_same_every_time() -> None:
    worlds = [World(seed, forwards=True) for seed in (3, 3, 4)]
    for world in worlds:
        await world.live()
    first, again, other = (world.trace.lines for world in worlds)
    assert first == again != other


async def _at_once(*_: object) -> None:
    """Instead of what waits."""


PLANTED: Final[dict[str, tuple[list[tuple[type, str, Callable[..., Any]]], tuple[int, ...]]]] = {
    "what is under way behind a failed batch is sent on": (
        [(Unsettled, "on_failed", lambda *_: None)],
        (91, 235, 674, 812, 840),
    ),
    "nothing comes behind a refused batch": (
        [
            (SequenceGaps, "is_behind", lambda *_, **__: False),
            (SequenceGaps, "behind", lambda *_: frozenset()),
        ],
        (17, 23, 27, 35, 55),
    ),
    "what is sent on goes in any order": (
        [(Resends, "wait_for_turn", _at_once), (Resends, "is_first", lambda *_: True)],
        (0, 20, 33, 52, 59),
    ),
}
"""Faults that somebody could make without noticing, and seeds that have found them."""


@pytest.mark.parametrize("name", PLANTED)
async def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of those seeds: where the code has changed, or what chance decides, others are to be looked for."""
    replaced, seeds = PLANTED[name]
    for owner, attribute, instead in replaced:
        monkeypatch.setattr(owner, attribute, instead)
    found = [seed for seed in seeds if await faults(seed, forwards=False)]
    assert found
