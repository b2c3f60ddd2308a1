"""Whatever happens to nodes: who is elected without an unclean election has all that was ever committed.

Logs are lists of numbers. A leader commits what all in sync have, while as many are in sync as min.insync.replicas asks
for. A process that crashes loses some of the end of its log, one that loses its disk all of it.
"""

from __future__ import annotations

import random

import pytest

from barnabas.controller.core.elections import (
    Restart,
    after_hand_over,
    after_node_came,
    after_node_left,
    after_node_restarted,
)
from barnabas.controller.core.partition_change import ElectionTerms, PartitionChange
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER

NODES = (1, 2, 3)
STEPS = 400


class Model:
    """One partition, its controller, and what its replicas have."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.needed = self.chance.randint(1, 3)
        self.record = PartitionRecord(leader=1, replicas=NODES, isr=NODES)
        self.there = set(NODES)
        self.logs: dict[int, list[int]] = {node: [] for node in NODES}
        self.committed: list[int] = []
        self.appended = 0
        self.clean_elections = 0

    def terms(self) -> ElectionTerms:
        return ElectionTerms(frozenset(self.there), lambda: self.needed, lambda: False)

    def change(self, after: PartitionRecord | None, distrusted: int | None = None) -> None:
        """The controller has decided; hold the decision against what it promises."""
        if after is None:
            return
        before, self.record = self.record, after
        isr, eligible = after.isr[:], after.eligible_leader_replicas[:]
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch - before.leader_epoch == (
            after.leader != before.leader or after.leader_epoch > before.leader_epoch
        )
        assert set(isr).isdisjoint(eligible)
        assert after.leader in isr or after.leader == NO_LEADER
        assert after.leader not in after.offline_replicas
        assert not (eligible and len(isr) >= self.needed)
        if after.leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
            return
        log = self.logs[after.leader]
        if after.leader in {*before.isr, *before.eligible_leader_replicas} - {distrusted}:
            self.clean_elections += 1
            assert log[: len(self.committed)] == self.committed, "a committed record is lost"
        else:
            assert after.leader in (*before.last_known_eligible_leader_replicas, before.leader)
            assert set(before.isr) <= {distrusted}
            assert set(before.eligible_leader_replicas) <= {distrusted}
            kept = 0
            while kept < min(len(log), len(self.committed)) and log[kept] == self.committed[kept]:
                kept += 1
            del self.committed[kept:]

    def leads(self) -> bool:
        return self.record.leader in self.there

    def append(self, node: int) -> None:
        if self.leads():
            self.appended += 1
            self.logs[self.record.leader].append(self.appended)

    def fetch(self, node: int) -> None:
        if self.leads() and node in self.there and node not in self.record.offline_replicas:
            self.logs[node] = self.logs[self.record.leader][:]

    def commit(self, node: int) -> None:
        if self.leads() and len(self.record.isr) >= self.needed:
            end = min(len(self.logs[each]) for each in self.record.isr)
            if end > len(self.committed):
                self.committed = self.logs[self.record.leader][:end]

    def propose(self, node: int) -> None:
        leader = self.record.leader
        if not self.leads() or node == leader:
            return
        change = PartitionChange(self.record, self.terms())
        if node in change.isr:
            change.leave(node)
        elif node in self.there and node not in change.offline and self.logs[node] == self.logs[leader]:
            change.isr = [*change.isr, node]
        self.change(change.build())

    def leave(self, node: int) -> None:
        self.there.discard(node)
        self.change(after_node_left(self.record, node, self.terms()))

    def hand_over(self, node: int) -> None:
        others = self.terms()
        self.there.discard(node)
        self.change(after_hand_over(self.record, node, self.terms()))
        self.there = set(others.eligible)

    def come_back(self, node: int) -> None:
        if node not in self.there:
            self.there.add(node)
            self.change(after_node_came(self.record, self.terms()))

    def restart(self, node: int) -> None:
        self.there.add(node)
        self.change(after_node_restarted(self.record, Restart(node, True, False), self.terms()))

    def crash(self, node: int) -> None:
        log = self.logs[node]
        del log[self.chance.randint(0, len(log)) :]
        self.there.add(node)
        self.change(after_node_restarted(self.record, Restart(node, False, False), self.terms()), node)

    def lose_the_disk(self, node: int) -> None:
        self.logs[node].clear()
        self.there.add(node)
        self.change(after_node_restarted(self.record, Restart(node, False, True), self.terms()), node)
        assert self.record.leader != node, "nobody asked for it"

    def report(self, node: int) -> None:
        if node in self.there:
            change = PartitionChange(self.record, self.terms())
            if node in change.offline:
                change.offline = [each for each in change.offline if each != node]
            else:
                change.offline = [*change.offline, node]
                change.leave(node)
            self.change(change.build())


@pytest.mark.parametrize("seed", range(60))
def test_a_clean_leader_has_everything(seed: int) -> None:
    model = Model(seed)
    steps = [model.leave, model.hand_over, model.come_back, model.restart, model.crash, model.report]
    often = [model.append, model.fetch, model.commit, model.propose] * 4
    for _ in range(STEPS):
        step = model.chance.choice([*often, *steps, model.come_back])
        step(model.chance.choice(NODES))
        if model.chance.random() < 0.01:
            model.lose_the_disk(model.chance.choice(NODES))
    assert model.clean_elections > 0
