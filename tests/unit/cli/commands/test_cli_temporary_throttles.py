"""What a command sets for its own time: whatever was set before is there again, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from administered_settings import AdministeredSettings

from barnabas.cli.balance.cluster_state import ClusterState, Node, Partition, Reassignment
from barnabas.cli.balance.directory_moves import Move, MovePlan
from barnabas.cli.balance.draining import Drain
from barnabas.cli.balance.health import MOVES_RATE
from barnabas.cli.commands import carrying_out, log_dir_moves, rebalance
from barnabas.cli.commands.carrying_out import Pace
from barnabas.cli.commands.log_dir_moves import MoveFlags
from barnabas.cli.kafka import cluster_reading, directory_moves, reassigning
from barnabas.cli.kafka.directory_moves import MovesOutcome
from barnabas.cli.kafka.reassigner import Outcome
from barnabas.cli.kafka.temporary_throttles import TemporaryThrottles
from barnabas.cli.kafka.throttling import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from barnabas.cli.refusal import Refused
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE

NODES = tuple(Node(at, "", "h", at) for at in (1, 2, 3))
STATE = ClusterState(NODES, (Partition("t", 0, (1, 2), (1, 2), 1, size_bytes=100),))
MOVING = Reassignment("t", 0, (1, 2), (3, 2), 100)
ENDED = ClusterState(NODES, (Partition("t", 0, (3, 2), (3, 2), 3, size_bytes=100),))
MOVE = Move("t", 0, "/d", "/e", 10)
BEFORE = {
    (TOPIC_RESOURCE, "t"): {LEADER_REPLICAS: "*", "retention.ms": "5"},
    (BROKER_RESOURCE, "1"): {LEADER_RATE: "111", MOVES_RATE: "222"},
}

Doing = Callable[[AdministeredSettings], Any]
Run = Callable[[AdministeredSettings, int | None, bool, Doing], None]


def see_through(
    settings: AdministeredSettings,
    throttle: int | None,
    is_joined: bool,
    doing: Doing,
    patch: pytest.MonkeyPatch,
) -> None:
    plans = [Drain(() if is_joined else (MOVING,), under_way=(MOVING,) if is_joined else ()), Drain(())]

    def carried_out(*_: object) -> Outcome:
        doing(settings)
        return Outcome(done=[MOVING])

    patch.setattr(carrying_out, "carry_out", carried_out)
    patch.setattr(cluster_reading, "read_state", lambda _: ENDED)
    patch.setattr(reassigning, "elect_preferred", lambda *_: {})
    carrying_out.see_through(
        settings, STATE, lambda _: plans.pop(0), Pace(throttle=throttle), unfinished="not all"
    )


def rebalanced(
    settings: AdministeredSettings,
    throttle: int | None,
    is_joined: bool,
    doing: Doing,
    patch: pytest.MonkeyPatch,
) -> None:
    def carried_out(*_: object) -> Outcome:
        doing(settings)
        return Outcome(done=[MOVING])

    patch.setattr(carrying_out, "carry_out", carried_out)
    patch.setattr(reassigning, "elect_preferred", lambda *_: {})
    begun, joined = ([], [MOVING]) if is_joined else ([MOVING], [])
    rebalance.carry_out_plan(settings, STATE, begun, joined, Pace(throttle=throttle))


def moved(
    settings: AdministeredSettings,
    throttle: int | None,
    is_joined: bool,
    doing: Doing,
    patch: pytest.MonkeyPatch,
) -> None:
    def carried_out(*_: object, **__: object) -> MovesOutcome:
        doing(settings)
        return MovesOutcome(done=[MOVE])

    patch.setattr(directory_moves, "carry_out", carried_out)
    begun, joined = ((), (MOVE,)) if is_joined else ((MOVE,), ())
    log_dir_moves.carry_out_plan(
        settings, NODES[0], MovePlan(begun, joined), MoveFlags(broker=1, throttle=throttle)
    )


@pytest.fixture(params=[see_through, rebalanced, moved])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda settings, throttle, is_joined, doing: request.param(
        settings, throttle, is_joined, doing, monkeypatch
    )


@pytest.fixture
def settings() -> AdministeredSettings:
    made = AdministeredSettings("t")
    made.of |= {resource: dict(values) for resource, values in BEFORE.items()}
    made.defaults = {LEADER_RATE: "9000", MOVES_RATE: "9000"}
    return made


def own(settings: AdministeredSettings) -> dict[tuple[int, str], dict[str, str]]:
    return {resource: values for resource, values in settings.of.items() if values}


def assert_throttled(settings: AdministeredSettings) -> None:
    rates = {name: settings.of[BROKER_RESOURCE, "1"][name] for name in (LEADER_RATE, MOVES_RATE)}
    assert sorted(rates.values()) in (["222", "7000"], ["111", "7000"]), rates


def test_what_a_command_sets_in_several_rounds_was_not_set_before(settings: AdministeredSettings) -> None:
    with TemporaryThrottles(settings) as throttles:
        for rate in (7000, 8000):
            throttles.throttle_reassignments(STATE, [MOVING], rate)
            assert settings.of[BROKER_RESOURCE, "1"][LEADER_RATE] == str(rate)
    assert own(settings) == BEFORE


@pytest.mark.parametrize("is_joined", [False, True])
def test_what_was_set_before_is_set_again(run: Run, settings: AdministeredSettings, is_joined: bool) -> None:
    run(settings, 7000, is_joined, assert_throttled)
    assert settings.changes
    assert own(settings) == BEFORE


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_run_without_a_throttle_leaves_throttles_alone(
    run: Run, settings: AdministeredSettings, is_joined: bool
) -> None:
    run(settings, None, is_joined, lambda _: None)
    assert settings.changes == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Refused("nothing has moved"), OSError(5, "no")])
def test_a_run_that_is_broken_off_puts_back_what_was_set(
    run: Run, settings: AdministeredSettings, raised: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: AdministeredSettings) -> None:
        raise raised

    with pytest.raises(BaseException) as ended:  # noqa: PT011 - Ctrl-C is one
        run(settings, 7000, False, fail)
    assert type(ended.value) in (raised, type(raised))
    assert own(settings) == BEFORE
    assert "what was begun goes on at the rates from before" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_and_a_kill_put_it_back_too(
    run: Run, settings: AdministeredSettings, number: signal.Signals
) -> None:
    handler = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        run(settings, 7000, False, lambda _: os.kill(os.getpid(), number))
    assert ended.value.code == 128 + number
    assert own(settings) == BEFORE
    assert signal.getsignal(number) is handler


@pytest.mark.parametrize("ends_by", [None, signal.SIGHUP])
def test_a_signal_while_it_is_put_back_does_not_leave_the_rest(
    run: Run, settings: AdministeredSettings, ends_by: signal.Signals | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell tells its commands that the terminal is closed, and then the kernel does."""
    change = settings._altered

    def doing(_: AdministeredSettings) -> None:
        def told_again(asked: Any) -> Any:
            os.kill(os.getpid(), signal.SIGHUP)
            return change(asked)

        monkeypatch.setattr(settings, "_altered", told_again)
        if ends_by is not None:
            os.kill(os.getpid(), ends_by)

    with contextlib.nullcontext() if ends_by is None else pytest.raises(SystemExit):
        run(settings, 7000, False, doing)
    assert own(settings) == BEFORE


def test_what_was_set_in_part_is_put_back(settings: AdministeredSettings, run: Run) -> None:
    settings.refused = {("2", LEADER_RATE), ("1", MOVES_RATE)}
    with pytest.raises(Refused, match=r"cannot alter the configs of [12]"):
        run(settings, 7000, False, lambda _: pytest.fail("it is not begun"))
    assert own(settings) == BEFORE


def test_a_node_that_does_not_say_what_was_set_gets_nothing_else(
    settings: AdministeredSettings, run: Run
) -> None:
    settings.silent = {1}
    with pytest.raises(Refused, match="h:1 did not answer"):
        run(settings, 7000, False, lambda _: pytest.fail("it is not begun"))
    assert own(settings) == BEFORE


def test_what_cannot_be_put_back_is_said_with_what_to_do(
    settings: AdministeredSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(changed: AdministeredSettings) -> None:
        changed.refused = {("2", FOLLOWER_RATE)}

    with pytest.raises(
        Refused, match=r"broker 2 keeps .*`barnabas configs --alter --broker 2 --delete-config leader"
    ):
        see_through(settings, 7000, False, forbid, monkeypatch)
    rates = {LEADER_RATE: "7000", FOLLOWER_RATE: "7000"}
    assert own(settings) == {**BEFORE, (BROKER_RESOURCE, "2"): rates}, "the others are as they were"


def test_a_topic_that_was_deleted_meanwhile_is_no_loss(
    settings: AdministeredSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_through(settings, 7000, False, lambda gone: gone.of.pop((TOPIC_RESOURCE, "t")), monkeypatch)
    assert own(settings) == {key: value for key, value in BEFORE.items() if key[0] == BROKER_RESOURCE}


def test_who_restarts_elsewhere_meanwhile_is_reached_through_another(
    settings: AdministeredSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_through(settings, 7000, False, lambda cluster: cluster.silent.add(2), monkeypatch)
    assert own(settings) == BEFORE


def test_both_sides_of_a_reassignment_are_held(
    settings: AdministeredSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(cluster: AdministeredSettings) -> None:
        replicas = {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3", "retention.ms": "5"}
        assert cluster.of[TOPIC_RESOURCE, "t"] == replicas
        for node in "123":
            own_rates = cluster.of[BROKER_RESOURCE, node]
            assert (own_rates[LEADER_RATE], own_rates[FOLLOWER_RATE]) == ("7000", "7000")

    see_through(settings, 7000, False, look, monkeypatch)
