"""Requests to a cluster whose brokers come and go, or freeze."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.cli.balance.cluster_state import Node
from barnabas.cli.kafka import administration
from barnabas.cli.kafka.administration import (
    AWAY_SECONDS_MAX,
    FIRST_SECONDS_MAX,
    LOOK_SECONDS_MAX,
    PAUSE_SECONDS,
    SILENT_SECONDS,
    Administration,
)
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.refusal import Refused

API = 46


class Brokers:
    """Owns the time, and by port what a broker does: answers, is gone, is frozen, or breaks once after the effect."""

    def __init__(self, **states: str) -> None:
        self.states = {int(name.removeprefix("at_")): state for name, state in states.items()}
        self.seconds = 1_000.0
        self.asked: list[int] = []
        self.connected: list[int] = []
        self.open = 0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def connect(self, _: Connection, host: str, port: int) -> FakeBroker:
        self.connected.append(port)
        if self.states[port] == "gone":
            raise Unanswered(f"cannot reach {host}:{port}")
        self.open += 1
        return FakeBroker(self, port)


class FakeBroker:
    def __init__(self, brokers: Brokers, port: int) -> None:
        self._brokers = brokers
        self._port = port
        self._is_known = False

    def __exit__(self, *_: object) -> None:
        self._brokers.open -= 1

    def versions(self, seconds: float) -> dict[int, tuple[int, int]]:
        if not self._is_known:
            self._answer(seconds)
        self._is_known = True
        return {API: (0, 0)}

    def ask(self, request: Any, seconds: float) -> Any:
        self._brokers.asked.append(self._port)
        self._answer(seconds)
        return request, self._port

    def _answer(self, seconds: float) -> None:
        state = self._brokers.states[self._port]
        if state == "frozen":
            self._brokers.seconds += seconds
        if state in ("frozen", "gone", "breaks"):
            self._brokers.states[self._port] = "answers" if state == "breaks" else state
            raise Unanswered(f"{self._port} did not answer")
        if state == "refuses":
            raise Refused("not served")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def start(bootstrap: str = "h:1", seconds: float = 30.0, **states: str) -> tuple[Brokers, Administration]:
        brokers = Brokers(**states)
        monkeypatch.setattr(administration, "PlainConnection", brokers.connect)
        monkeypatch.setattr(administration, "check_reachable", lambda bootstrap: None)
        monkeypatch.setattr(administration, "request_schema", lambda key, version: (key, version))
        monkeypatch.setattr(administration.time, "monotonic", lambda: brokers.seconds)
        monkeypatch.setattr(administration.time, "sleep", brokers.sleep)
        return brokers, Administration(Connection(bootstrap), seconds)

    return start


def ask(asked: Administration) -> Any:
    return asked.ask(API, 5, lambda schema: schema)


def test_one_connection_is_kept_and_closed(started: Any) -> None:
    brokers, asked = started(at_1="answers")
    with asked:
        assert ask(asked) == ((API, 0), 1)
        ask(asked)
        asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
    assert brokers.connected == [1, 1]
    assert brokers.open == 0


def test_a_broken_connection_is_made_anew(started: Any) -> None:
    brokers, asked = started(at_1="breaks")
    with asked:
        assert ask(asked)[1] == 1
    assert (brokers.connected, brokers.asked) == ([1, 1], [1])


def test_a_frozen_broker_is_waited_for_once(started: Any) -> None:
    brokers, asked = started(at_1="frozen", at_2="answers")
    with asked:
        asked.brokers = [("h", 1), ("h", 2)]
        assert ask(asked)[1] == 2
        assert ask(asked)[1] == 2
        with pytest.raises(Unanswered, match="gave no answer a moment ago"):
            asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
    assert (brokers.connected, brokers.asked) == ([1, 2], [2, 2])


def test_who_only_looks_does_not_wait_for_a_frozen_broker(started: Any) -> None:
    brokers, asked = started("h:1,h:2", LOOK_SECONDS_MAX, at_1="frozen", at_2="answers", at_3="frozen")
    begun = brokers.seconds
    with asked:
        assert ask(asked)[1] == 2
        with pytest.raises(Unanswered):
            asked.ask_broker(("h", 3), API, 0, lambda schema: schema)
    assert brokers.seconds - begun <= 2 * LOOK_SECONDS_MAX + PAUSE_SECONDS


def test_a_broker_that_freezes_between_two_answers(started: Any) -> None:
    brokers, asked = started("h:1", LOOK_SECONDS_MAX, at_1="answers")
    with asked:
        asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
        brokers.states[1] = "frozen"
        begun = brokers.seconds
        with pytest.raises(Unanswered):
            asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
    assert brokers.seconds - begun <= 2 * LOOK_SECONDS_MAX
    assert brokers.open == 0


def test_nodes_are_asked_at_the_same_time() -> None:
    nodes = [Node(at, "", "h", at) for at in range(1, 5)]
    all_are_asked = threading.Barrier(len(nodes))

    def wait(node: Node) -> int:
        all_are_asked.wait(timeout=30)
        return 10 * node.node_id

    asked = Administration(Connection("h:1"))
    away = [Node(8, "", "h", 8, is_fenced=True), Node(9)]
    assert asked.ask_each([*nodes, *away], wait) == {1: 10, 2: 20, 3: 30, 4: 40}


def test_nodes_behind_one_address_take_turns(started: Any) -> None:
    brokers, asked = started(at_1="answers")
    nodes = [Node(at, "", "h", 1) for at in range(1, 9)]
    with asked:
        asked.ask_each(nodes, lambda _: asked.ask_broker(("h", 1), API, 0, lambda schema: schema))
    assert brokers.connected == [1]
    assert brokers.open == 0


def test_a_silent_broker_is_asked_again_later(started: Any) -> None:
    brokers, asked = started(at_1="gone")
    with pytest.raises(Unanswered, match="cannot reach h:1"):
        asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
    brokers.states[1] = "answers"
    brokers.seconds += SILENT_SECONDS
    assert asked.ask_broker(("h", 1), API, 0, lambda schema: schema)[1] == 1


def test_a_kept_connection_of_a_broker_that_restarted(started: Any) -> None:
    brokers, asked = started(at_1="answers")
    with asked:
        asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
        brokers.states[1] = "breaks"
        assert asked.ask_broker(("h", 1), API, 0, lambda schema: schema)[1] == 1
    assert brokers.open == 0


def test_nobody_answers_for_long(started: Any) -> None:
    brokers, asked = started("h:1,h:2", at_1="answers", at_2="gone")
    with asked:
        ask(asked)
        brokers.states[1] = "gone"
        begun = brokers.seconds
        with pytest.raises(Refused, match="run it again to see it through"):
            ask(asked)
    assert AWAY_SECONDS_MAX <= brokers.seconds - begun < AWAY_SECONDS_MAX + 1


def test_nobody_answers_from_the_first(started: Any) -> None:
    brokers, asked = started("h:1", LOOK_SECONDS_MAX, at_1="frozen")
    begun = brokers.seconds
    with (
        asked,
        pytest.raises(Refused, match=r"h:1 takes connections and does not answer .* may name several"),
    ):
        ask(asked)
    assert FIRST_SECONDS_MAX <= brokers.seconds - begun < FIRST_SECONDS_MAX + LOOK_SECONDS_MAX


def test_a_refusal_is_final(started: Any) -> None:
    brokers, asked = started(at_1="refuses")
    with asked, pytest.raises(Refused, match="not served"):
        ask(asked)
    with pytest.raises(Refused, match="not served"):
        asked.ask_broker(("h", 1), API, 0, lambda schema: schema)
    assert brokers.open == 0
