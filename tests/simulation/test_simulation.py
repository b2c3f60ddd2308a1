"""The short form of `make simulate`: some seeds, that one replays exactly, and that planted faults are found."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from consumer_group_lives import MIGRATING
from consumer_group_plan import (
    ASSIGNORS,
    CLASSIC,
    CONSUMER,
    GONE_OWNER,
    LATE_DECISION,
    LOST_DECISION,
    make_consumer_group_plan,
)
from fault_plan import make_plan
from planted_faults import PLANTED, planted
from run import Job, command, fewest_faults, run_job
from run_plans import make_plans
from simulated_cluster import run_seed
from transaction_plan import LATE_END

from barnabas.coordinator.transactions.core.decision import Decision, Waiter
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import EndTxnResponse

HERE = Path(__file__).resolve().parent

SEEDS = (*range(13), 15, 16, 35, 46, 53)
"""Those that are always run: with every kind of fault, and such as have shown more than others."""

HAS_ALL_KINDS = 66
"""A seed with faults of the cluster, of transactions and of the migrating group."""

GOES_BOTH_WAYS = 45
"""A seed under which a group goes over to KIP-848 and back."""

FAILED_ONCE = (
    (17, 1),
    (
        1462,
        1,
    ),  # __consumer_offsets got a replica at a node that was about to be unregistered, and waited for it
    (2357, 1),  # batches without sequences changed places where leadership moved
    (3808, 1),  # as 1462, where that replica had led
    (
        3331,
        3,
    ),  # what a replica had compacted was held against others that had not heard of as high a watermark
    (3883, 3),  # what a move had left had lost its topic's id with the power, and no other move could end
    (3804, 1),  # a transaction that began while its coordinator's clock was ahead was open for as much longer
    (4932, 1),  # compaction took batches that a producer, whose answers were lost, sent again
    (4734, 1),  # a marker was kept back that was taken for a write of the group's
    (17, 3),
    (30018, 3),
    (300068, 3),
    (60, 1),  # a transaction was aborted when the clock of its coordinator, a broker, had jumped
    (111, 3),  # as 60
    (910131, 3),  # a deposed coordinator, which had not heard of it, refused a commit by what it knew
    (165, 1),  # a transaction began for its coordinator with one that its client thought it had never begun
    (1641, 1),  # a coordinator whose log took no writes said yes to a heartbeat, and did not mean it
    (1785, 3),  # a disk was replaced in the moment in which power began to fail everywhere
    (2169, 3),  # which epoch was the last was forgotten with the coordinator that had written the next
    (2318, 3),  # a log that was to begin anew on a full disk had nothing left, and never went on
    (2817, 3),  # a node with records that nobody could read was drained, and waited for
    (4503, 1),  # a topic was taken for the one before it of its name, whose deletion a disk had refused
    (941026, 3),  # a disk was full while another node had an empty one and the third was killed
    (502, 3),  # a leader had never heard of what a producer wrote, for that was deleted before its log began
    (970152, 3),  # a disk was replaced while the controllers did not hear the one other node that had all
    (
        1828396013,
        1,
    ),  # who asked again to join, for its answer was lost, was out a session after the first time
    (1007431015, 3),  # who asked late for its assignment was out before it could say that it is there
    (1_753_482_034, 3),  # a classic generation was held for written before it had been shared out
    (
        5830,
        3,
    ),  # a disk was replaced while the one other node with all had stopped, which was given up before it was back
    (
        6003,
        3,
    ),  # a partition was moved to the one node that was to lose its disk for what nobody could read there
    (5612, 1),  # a coordinator whose log's leader did not answer told what had been committed once
    (6243, 3),  # what compaction had taken counted as missing where epochs were known from what it had left
    (
        1_780_944_023,
        3,
    ),  # what was deleted came back in a crash without its leader epochs, and could follow nobody
    (1_562_703_002, 1),  # a node that was started meanwhile counted as one that had heard of a deletion
    (
        5633,
        1,
    ),  # a batch was sent on to a leader that had never heard of its producer, before one that had failed
)
"""Seeds that showed a fault of the code or of the simulation, each with the replicas that its topics have, beyond those
in SEEDS: whoever finds another one adds it. Where what a seed lets happen has changed since, it is one more seed.
"""


def violations(seed: int, replication_factor: int) -> tuple[str, ...]:
    """What goes wrong under a seed without a fault in the code."""
    outcome = run_seed(seed, replication_factor)
    assert outcome.acknowledged >= 50, "a run in which nothing happens shows nothing"
    return outcome.violations


@pytest.mark.parametrize("replication_factor", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int, replication_factor: int) -> None:
    assert not violations(seed, replication_factor), command(Job(seed, replication_factor, (), "", ""))


@pytest.mark.parametrize(("seed", "replication_factor"), FAILED_ONCE)
def test_what_failed_once_does_so_no_more(seed: int, replication_factor: int) -> None:
    assert not violations(seed, replication_factor), command(Job(seed, replication_factor, (), "", ""))


FRESH_SEEDS = 100
"""In each run: half of them with one replica, half with three."""

FIRST_FRESH_SEED = int(
    os.environ.get("SIMULATION_FIRST_SEED") or 1_000 * random.SystemRandom().randrange(1_000, 2_000_000)
)
"""Another one in each run; what fails names its own seed."""


@pytest.mark.parametrize("number", range(FRESH_SEEDS))
def test_fresh_seeds_keep_them_too(number: int) -> None:
    """The seeds are not in the names of the tests: those are the same in each process that runs some of them."""
    seed, replication_factor = FIRST_FRESH_SEED + number, (1, 3)[number % 2]
    outcome = run_seed(seed, replication_factor)
    assert not outcome.violations, command(Job(seed, replication_factor, (), "", ""))


def kinds(seeds: Iterable[int]) -> set[str]:
    plans = (make_plan(seed, replication_factor) for seed in seeds for replication_factor in (1, 3))
    return {fault.kind for plan in plans for fault in plan.faults}


def test_every_kind_of_fault_happens_under_them() -> None:
    assert kinds(SEEDS) == kinds(range(300))


def test_brokers_are_the_coordinators_under_some_of_them() -> None:
    plans = [make_plan(*each) for each in RUN_ANYWAY]
    assert any(plan.hosts_coordinators and plan.nodes > 1 for plan in plans)
    assert any(not plan.gateways and not plan.hosts_coordinators for plan in plans)
    assert any(make_plan(*each).hosts_coordinators for each in FINDERS), "what they break is found"


def test_every_kind_of_member_and_of_migration_is_in_the_groups_that_change_their_protocol() -> None:
    plans = [plan for seed in range(200) if (plan := make_consumer_group_plan(seed)) is not None]
    seats = [seat for plan in plans for seat in plan.seats]
    assert {(seat.is_static, seat.has_regex, seat.assignor) for seat in seats} == {
        *itertools.product((False, True), (False, True), ASSIGNORS)
    }
    assert {tuple(protocol for _, protocol in seat.switches) for seat in seats} >= {
        (CLASSIC, CONSUMER, CLASSIC),
        (CONSUMER, CLASSIC, CONSUMER),
    }
    assert {fault.kind for plan in plans for fault in plan.faults} == {
        GONE_OWNER,
        LOST_DECISION,
        LATE_DECISION,
    }


def test_a_group_with_members_changes_its_protocol_both_ways() -> None:
    assert make_consumer_group_plan(GOES_BOTH_WAYS) is not None
    lines = run_seed(GOES_BOTH_WAYS, keeps_trace=True).trace.lines
    for change in ("classic group becomes a consumer group", "consumer group becomes a classic group"):
        assert any(change in line and f"group_id={MIGRATING}" in line for line in lines), change


def digest(seed: int, replication_factor: int, hash_seed: str) -> str:
    done = subprocess.run(
        [
            *(sys.executable, HERE / "run.py"),
            *("--seeds", str(seed), "--replication-factor", str(replication_factor)),
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("seed", "replication_factor"), [(4, 1), (9, 1), (12, 1), (24, 1), (1, 3), (2, 3), (17, 3), (83, 3)]
)
def test_a_seed_replays_exactly(seed: int, replication_factor: int) -> None:
    assert digest(seed, replication_factor, "1") == digest(seed, replication_factor, "2")


def test_a_seed_replays_exactly_after_others() -> None:
    first = run_seed(3).trace.digest
    run_seed(5)
    assert run_seed(3).trace.digest == first
    assert run_seed(4).trace.digest != first


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    """By the seed that has found it once: where the code has changed since, another one is looked for by hand."""
    plant = PLANTED[name]
    with planted(name):
        outcome = run_seed(plant.seed, plant.replication_factor)
    assert plant.is_found_by(outcome.violations), (
        f"seed {plant.seed} finds it no more; make simulate-mutants ARGS='--plant {name}' looks for one that does"
    )


def test_who_is_said_to_refuse_without_being_the_owner_does() -> None:
    plant = PLANTED["refuse-without-being-the-owner"]
    decision = Decision(0, 0)
    plant.make(getattr(plant.owner, plant.name))(
        decision, Waiter(0), ErrorCode.producer_fenced, EndTxnResponse()
    )
    assert decision.replies
    assert not decision.must_be_owner


def test_every_fault_is_numbered_and_can_be_left_out() -> None:
    plans = make_plans(HAS_ALL_KINDS, 3)
    assert plans.cluster.faults
    assert plans.transactions is not None
    assert plans.transactions.faults
    assert plans.group is not None
    assert plans.group.faults
    every = plans.faults
    assert len(every) == sum(map(len, (plans.cluster.faults, plans.transactions.faults, plans.group.faults)))
    for number in range(len(every)):
        assert plans.without({number}).faults == every[:number] + every[number + 1 :]


def test_a_run_that_fails_is_shrunk_to_the_fault_of_transactions_that_it_needs() -> None:
    name = "show-offsets-beside-pending-ones"
    plant = PLANTED[name]
    plans = make_plans(plant.seed, plant.replication_factor)
    job = Job(plant.seed, plant.replication_factor, (), name, "")
    assert plant.is_found_by(run_job(job).violations)
    without = fewest_faults(job, len(plans.faults))
    (needed,) = plans.without(without).faults
    assert needed.kind == LATE_END


FINDERS = {(plant.seed, plant.replication_factor) for plant in PLANTED.values()}
"""The seeds that find planted faults, and the replicas of their topics."""

RUN_ANYWAY = {*itertools.product(SEEDS, (1, 3)), *FAILED_ONCE}


@pytest.mark.parametrize(("seed", "replication_factor"), sorted(FINDERS - RUN_ANYWAY))
def test_it_is_the_planted_fault_that_is_found(seed: int, replication_factor: int) -> None:
    """A seed that finds one is well without it."""
    assert not violations(seed, replication_factor), command(Job(seed, replication_factor, (), "", ""))
