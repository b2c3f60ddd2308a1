"""Twenty faults in a row to a cluster of real processes: each kind at least once, and a fresh seed every time."""

from __future__ import annotations

import random

import pytest
from chaos_plan import FORMS, KINDS, make_plan
from run_chaos import form_of, protocol_of, run_seed

pytestmark = [pytest.mark.integration, pytest.mark.alone]

FAULTS = 20


@pytest.mark.timeout(600)
def test_a_cluster_keeps_its_promises_whatever_fails() -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    outcome = run_seed(seed, form_of(seed), protocol_of(seed), FAULTS)
    assert outcome.violations == [], "the command that does the same faults again is above"
    assert len(outcome.seen) == FAULTS
    assert outcome.acknowledged
    assert outcome.latest_offsets
    assert outcome.committed_offsets
    assert outcome.copied == outcome.acknowledged
    assert outcome.aborted


@pytest.mark.parametrize("form", FORMS)
def test_a_seed_is_the_same_faults_in_the_same_order(form: str) -> None:
    plan = make_plan(7, form, 50)
    assert make_plan(7, form, 50) == plan
    assert make_plan(7, form, FAULTS) == plan[:FAULTS]
    assert make_plan(8, form, 50) != plan
    assert {fault.kind for fault in plan[:FAULTS]} == set(KINDS)
    few = ["reassign", "rolling restart"]
    assert {fault.kind for fault in make_plan(7, form, 4, few)} == set(few)
