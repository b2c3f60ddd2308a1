"""In which runs there is a compacted topic, who writes to it, and what happens for its sake."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from fault_kinds import REFUSING_DISK, ZOMBIE, Fault

COMPACTED_TOPICS: Final = 0.3
"""In how many runs there is a compacted topic; __consumer_offsets is one in all of them."""

BOLD_PRODUCERS: Final = 0.33
"""In how many of those, where there are several replicas, somebody writes to it with acks=1, also to a leader that is
alone.
"""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Of one run."""

    has_topic: bool
    has_bold_producer: bool


def make_compaction_plan(seed: int, replication_factor: int) -> CompactionPlan:
    """What `seed` has in a cluster whose topics have so many replicas."""
    has_topic = random.Random(f"{seed}/plan/compacted topic").random() < COMPACTED_TOPICS
    is_bold = random.Random(f"{seed}/plan/bold producer").random() < BOLD_PRODUCERS
    return CompactionPlan(has_topic, has_topic and is_bold and replication_factor > 1)


def about_leaders_alone(
    chance: random.Random, plan: CompactionPlan, faults: list[Fault], nodes: int
) -> list[Fault]:
    """`faults`, and where somebody is bold a node is alone with its clients until another one leads; meanwhile it may
    clean what it leads.
    """
    # Where a disk refuses nobody else starts or ends meanwhile.
    if not plan.has_bold_producer or any(each.kind == REFUSING_DISK for each in faults):
        return faults
    at, seconds = chance.uniform(1.5, 3.0), chance.uniform(4.0, 5.0)
    if chance.random() < 0.5:
        faults = [each for each in faults if each.at + each.seconds < at]
    return [*faults, Fault(at, ZOMBIE, f"node-{chance.randint(1, nodes)}", seconds)]
