"""What a player meets on its thread is told to whoever waits for it."""

from __future__ import annotations

import golden_session
import pytest
from golden_recorder import play_side_by_side
from golden_session import Cluster, Row, Run
from running_cluster import free_ports

API_VERSIONS = 18
RANGES = {API_VERSIONS: (0, 0)}


def asks(run: Run) -> None:
    run.ask("asked", {})


def test_a_cluster_that_takes_no_connections_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_session, "SCENARIOS", [Row(asks, API_VERSIONS, newest_only=False)] * 1_000)
    port = free_ports(1)
    with pytest.raises(ConnectionRefusedError):
        play_side_by_side((Cluster(port, RANGES), Cluster(port, RANGES)), "")


def test_nothing_is_played_once_it_is_over() -> None:
    golden_session.play(Cluster(free_ports(1), RANGES), is_over=lambda: True)
