"""A group whose members change between the classic protocol and that of KIP-848: what a seed lets it do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from fault_kinds import FAULTS_SECONDS

MIGRATING_SEEDS: Final = 3
"""Of seven: in the others nobody is in such a group. Few of the seeds recorded for planted faults are among them."""

SHELVES: Final = "shelves"
"""The topic that the group reads."""

SHELVES_REGEX: Final = "shel.*s"

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

ASSIGNORS: Final = (None, "uniform", "range")

GONE_OWNER: Final = "owner of the group gone"
"""The coordinator that owns the group is killed."""

LOST_DECISION: Final = "lost decision of the group"
"""What it writes to its log never gets there, and it is killed."""

LATE_DECISION: Final = "late decision of the group"
"""What it writes comes late, for its log stands still."""


@dataclass(frozen=True, slots=True)
class GroupFault:
    """What befalls whoever owns the group at that moment."""

    at: float
    kind: str
    seconds: float

    def __str__(self) -> str:
        return f"at {self.at:.2f} s, {self.seconds:.2f} s: {self.kind}"


@dataclass(frozen=True, slots=True)
class Seat:
    """One place in the group, taken by one member after another."""

    assignor: str | None
    is_static: bool
    has_regex: bool
    """Whether it subscribes by a regular expression, where its protocol has these."""
    switches: tuple[tuple[float, str], ...]
    """From when on it speaks which protocol; the first is from the beginning."""

    def protocol_at(self, seconds: float) -> str:
        return [protocol for at, protocol in self.switches if at <= seconds][-1]


@dataclass(frozen=True, slots=True)
class ConsumerGroupPlan:
    """The shape of it."""

    partitions: int
    seats: tuple[Seat, ...]
    faults: tuple[GroupFault, ...]


def make_consumer_group_plan(seed: int) -> ConsumerGroupPlan | None:
    """None for a run without such a group."""
    if seed % 7 != MIGRATING_SEEDS:
        return None
    chance = random.Random(f"{seed}/plan/consumer group")
    count = chance.choice((2, 3, 3, 4))
    waves = _waves(chance)
    seats = tuple(
        Seat(
            chance.choice(ASSIGNORS),
            chance.random() < 0.5,
            chance.random() < 0.3,
            _switches(chance, waves, number),
        )
        for number in range(count)
    )
    return ConsumerGroupPlan(chance.choice((2, 3, 5)), seats, tuple(_faults(chance, waves)))


def _waves(chance: random.Random) -> list[tuple[float, str]]:
    """When the group begins to go over to which protocol, member by member."""
    protocols = chance.choice(
        (
            (CONSUMER,),
            (CLASSIC, CONSUMER),
            (CONSUMER, CLASSIC),
            (CLASSIC, CONSUMER, CLASSIC),
            (CONSUMER, CLASSIC, CONSUMER),
        )
    )
    at, waves = 0.0, []
    for protocol in protocols:
        waves.append((at, protocol))
        at += chance.uniform(1.5, 3.0)
    return waves


def _switches(
    chance: random.Random, waves: list[tuple[float, str]], number: int
) -> tuple[tuple[float, str], ...]:
    """One after another; some do not take part in the last wave, so that the group stays mixed."""
    (_, first), *others = waves
    switches = [(0.0, first)]
    for wave, (at, protocol) in enumerate(others, start=1):
        if wave < len(others) or chance.random() < 0.85:
            switches.append((at + number * chance.uniform(0.1, 0.6), protocol))
    return tuple(switches)


def _faults(chance: random.Random, waves: list[tuple[float, str]]) -> list[GroupFault]:
    """At any time, or while members go over."""
    faults = []
    for _ in range(chance.choice((0, 1, 2, 3))):
        around = chance.choice([at for at, _ in waves]) + chance.uniform(0.0, 1.5)
        at = chance.choice((around, chance.uniform(0.5, FAULTS_SECONDS - 2.0)))
        kind = chance.choice((GONE_OWNER, LOST_DECISION, LATE_DECISION))
        faults.append(GroupFault(max(at, 0.3), kind, chance.uniform(0.1, 1.0)))
    return sorted(faults, key=lambda fault: fault.at)
