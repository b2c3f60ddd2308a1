"""`barnabas rebalance` where somebody else reassigns partitions meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest
from administered_settings import AdministeredSettings
from typer.testing import CliRunner, Result

from barnabas.cli.balance.cluster_state import ClusterState, Node, Partition, Reassignment
from barnabas.cli.commands import carrying_out, rebalance
from barnabas.cli.commands.flags import ClusterFlags
from barnabas.cli.kafka import cluster_reading, reassigning
from barnabas.cli.kafka.reassigner import Outcome, Problem
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

NODES = tuple(Node(at, "", "h", at) for at in (1, 2))
UNEVEN = ClusterState(
    NODES,
    tuple(Partition("t", at, (1,), (1,), 1, sizes={1: 100}, size_bytes=100) for at in range(2)),
)
EVEN = ClusterState(
    NODES,
    tuple(
        Partition("t", at, (node,), (node,), node, sizes={node: 100}, size_bytes=100)
        for at, node in enumerate((1, 2))
    ),
)

CarriedOut = Callable[[Sequence[Reassignment]], Outcome]


def passed_over(planned: Sequence[Reassignment]) -> Outcome:
    return Outcome(passed_over=list(planned))


def done(planned: Sequence[Reassignment]) -> Outcome:
    return Outcome(done=list(planned))


def given_up(planned: Sequence[Reassignment]) -> Outcome:
    return Outcome(given_up=list(planned))


def refused(planned: Sequence[Reassignment]) -> Outcome:
    problem = Problem(ErrorCode.invalid_replica_assignment, "no such broker")
    return Outcome(refused={reassignment.place: problem for reassignment in planned})


class Cluster:
    """Owns what becomes of each plan, in their order, and how the cluster is after each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *turns: tuple[CarriedOut, ClusterState]) -> None:
        self.planned: list[int] = []
        self._turns = list(turns)
        self._state = UNEVEN
        monkeypatch.setattr(carrying_out, "carry_out", self._carry_out)
        monkeypatch.setattr(cluster_reading, "read_state", lambda _: self._state)
        monkeypatch.setattr(reassigning, "elect_preferred", lambda *_: {})
        monkeypatch.setattr(ClusterFlags, "administer", lambda _: nullcontext(AdministeredSettings("t")))

    def _carry_out(self, _: object, planned: Sequence[Reassignment], *__: object) -> Outcome:
        self.planned.append(len(planned))
        carried_out, self._state = self._turns.pop(0)
        return carried_out(planned)

    @staticmethod
    def rebalance(*flags: str) -> Result:
        return CliRunner().invoke(rebalance.app, ["--yes", *flags])


def test_what_somebody_else_reassigned_meanwhile_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the controller does with internal topics that get more replicas."""
    cluster = Cluster(monkeypatch, (passed_over, UNEVEN), (done, EVEN))
    result = cluster.rebalance("--output", "json")
    assert (result.exit_code, cluster.planned) == (0, [1, 1])
    assert len(json.loads(result.stdout)["partitions"]) == 1
    assert "somebody else reassigned them meanwhile" in result.stderr
    assert "planned again" in result.stderr


def test_what_others_began_and_is_waited_for_is_followed_by_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out of a plan, and may leave the cluster as uneven as it was."""
    busy = replace(UNEVEN, partitions=tuple(replace(each, removing=(3,)) for each in UNEVEN.partitions))
    cluster = Cluster(monkeypatch, (passed_over, busy), (done, UNEVEN), (done, EVEN))
    assert (cluster.rebalance().exit_code, cluster.planned) == (0, [1, 0, 1])


def test_nothing_may_be_left_to_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, (passed_over, EVEN), (done, EVEN))
    assert (cluster.rebalance().exit_code, cluster.planned) == (0, [1, 0])


def test_it_is_not_planned_again_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, *[(passed_over, UNEVEN)] * 100)
    result = cluster.rebalance()
    assert isinstance(result.exception, Refused)
    assert cluster.planned == [1] * rebalance.PLANS_MAX


@pytest.mark.parametrize("carried_out", [given_up, refused])
def test_what_is_given_up_or_refused_is_not_begun_again(
    carried_out: CarriedOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(monkeypatch, (carried_out, UNEVEN), (done, EVEN))
    result = cluster.rebalance()
    assert isinstance(result.exception, Refused)
    assert cluster.planned == [1]
