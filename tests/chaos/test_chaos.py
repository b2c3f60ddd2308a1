"""Twenty faults in a row to a cluster of real processes: each kind at least once, and a fresh seed every time."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from chaos_plan import CONTROL, FORMS, KINDS_AND_CONTROL, make_plan
from run_chaos import command, form_of, protocol_of, run_seed

pytestmark = [pytest.mark.integration, pytest.mark.alone]

FAULTS = 20


@pytest.mark.timeout(600)
def test_a_cluster_keeps_its_promises_whatever_fails() -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    outcome = run_seed(seed, form_of(seed), protocol_of(seed), FAULTS)
    assert outcome.violations == [], "the command that does the same faults again is above"
    assert len(outcome.faults) == FAULTS
    assert outcome.acknowledged
    assert outcome.latest_offsets
    assert outcome.committed_offsets
    assert outcome.copied == outcome.acknowledged
    assert outcome.aborted


@pytest.mark.parametrize("form", FORMS)
def test_a_seed_is_the_same_faults_in_the_same_order(form: str) -> None:
    plan = make_plan(7, form, 50)
    assert make_plan(7, form, 50) == plan
    short = make_plan(7, form, FAULTS)
    assert short == plan[: len(short)]
    assert make_plan(8, form, 50) != plan
    assert {fault.kind for fault in short} == set(KINDS_AND_CONTROL)
    assert sum(fault.kind != CONTROL for fault in short) == FAULTS


def test_a_plan_may_be_of_some_kinds() -> None:
    few = ["reassign", "rolling restart"]
    assert [fault.kind for fault in make_plan(7, "brokers", 4, few)].count("reassign") == 2
    assert {fault.kind for fault in make_plan(7, "brokers", 2, [*few, CONTROL])} >= set(few)
    assert [fault.kind for fault in make_plan(7, "brokers", 3, [CONTROL])] == [CONTROL] * 3


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in KINDS_AND_CONTROL), ("reassign", "kill etcd's leader")]
)
def test_the_command_that_does_the_same_faults_again_is_one_in_a_shell(
    kinds: Sequence[str], tmp_path: Path
) -> None:
    (tmp_path / "Makefile").write_text("chaos:\n\t@printf '%s\\n' $(ARGS)\n")
    apart = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    told = ["bash", "-c", command(7, "brokers", "classic", 3, kinds)]
    said = subprocess.run(told, cwd=tmp_path, env=apart, check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[-2 * len(kinds) :] == [word for kind in kinds for word in ("--kind", kind)]


def test_the_command_names_no_kinds_where_all_were_done() -> None:
    assert "--kind" not in command(7, "brokers", "classic", 3, KINDS_AND_CONTROL)
