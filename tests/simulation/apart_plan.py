"""Runs in which one coordinator owns the groups, and another one the transactions.

Of topics with one partition each, both are the first coordinator's as a rule, which tells itself by a plain call how
transactions end. Clusters have fifty partitions of each, and as a rule it is another one that has to be told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fault_plan import Plan

ROUNDS: Final = 27
"""One seed of so many."""

APART_REMAINDER: Final = 24
"""Its remainder by ROUNDS: none of the seeds recorded for what is planted elsewhere has it."""

LAST_COORDINATOR: Final = "coordinator-1"
"""Starts when the other one owns the groups; what is made from then on is its own, for its name comes first."""


def owners_are_apart(seed: int) -> bool:
    return seed % ROUNDS == APART_REMAINDER


def with_owners_apart(plan: Plan) -> Plan:
    """With two coordinators, two gateways that clients may change, and none of its own faults."""
    return replace(plan, gateways=2, coordinators=2, hosts_coordinators=False, has_onlooker=False, faults=())
