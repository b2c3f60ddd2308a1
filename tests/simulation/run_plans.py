"""All that a seed lets happen in one run: of the cluster, of its transactions and of its migrating group.

Faults are numbered through, the cluster's first, then those of transactions, then those of the group: any can be left
out, and the others happen as they would have, so that a run that fails is shrunk to those that it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from apart_plan import owners_are_apart, with_owners_apart
from consumer_group_plan import ConsumerGroupPlan, GroupFault, make_consumer_group_plan
from fault_kinds import Fault
from fault_plan import Plan, make_plan
from transaction_plan import TransactionFault, TransactionPlan, make_transaction_plan

FaultT = TypeVar("FaultT")


@dataclass(frozen=True, slots=True)
class RunPlans:
    """The shape of one run."""

    cluster: Plan
    transactions: TransactionPlan | None
    group: ConsumerGroupPlan | None

    @property
    def faults(self) -> tuple[Fault | TransactionFault | GroupFault, ...]:
        """By their numbers, from 0."""
        return (
            *self.cluster.faults,
            *(() if self.transactions is None else self.transactions.faults),
            *(() if self.group is None else self.group.faults),
        )

    def without(self, numbers: Collection[int]) -> RunPlans:
        """But for those of its faults that have these numbers."""
        kept = {number for number in range(len(self.faults)) if number not in numbers}
        cluster, transactions, group = self.cluster, self.transactions, self.group
        first = len(cluster.faults)
        cluster = replace(cluster, faults=_kept(cluster.faults, 0, kept))
        if transactions is not None:
            faults = transactions.faults
            transactions = replace(transactions, faults=_kept(faults, first, kept))
            first += len(faults)
        if group is not None:
            group = replace(group, faults=_kept(group.faults, first, kept))
        return RunPlans(cluster, transactions, group)


def _kept(faults: Sequence[FaultT], first: int, kept: Collection[int]) -> tuple[FaultT, ...]:
    """Those of `faults`, which are numbered from `first`, that are kept."""
    return tuple(fault for number, fault in enumerate(faults, first) if number in kept)


def make_plans(seed: int, replication_factor: int) -> RunPlans:
    """What `seed` lets happen in a cluster whose topics have so many replicas."""
    cluster = make_plan(seed, replication_factor)
    if owners_are_apart(seed):
        cluster = with_owners_apart(cluster)
    return RunPlans(cluster, make_transaction_plan(seed), make_consumer_group_plan(seed))
