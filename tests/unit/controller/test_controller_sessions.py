"""How long services may be away: after their stream broke, and when another controller takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from barnabas.controller.sessions import Kind, Member, Sessions
from barnabas.metadata.image import MetadataImage
from barnabas.rpc.v1 import metadata_pb2 as md

TIMEOUTS_MS = {Kind.NODE: 2000, Kind.GATEWAY: 1000, Kind.COORDINATOR: 500}

IMAGE = MetadataImage().apply(
    [
        md.MetadataRecord(key="nodes/1", node=md.NodeRecord(node_id=1, incarnation_id="a", address="n1")),
        md.MetadataRecord(key="gateways/g", gateway=md.GatewayRecord(gateway_id="g")),
        md.MetadataRecord(
            key="coordinators/c", coordinator=md.CoordinatorRecord(coordinator_id="c", incarnation_id="a")
        ),
    ],
    1,
)


class Timers:
    """An event loop's timers that go off when told to."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def call_later(
        self, seconds: float, callback: Callable[..., None], *arguments: object
    ) -> SimpleNamespace:
        entry = (seconds, callback, arguments)
        self.pending.append(entry)
        return SimpleNamespace(cancel=lambda: self.pending.remove(entry))

    def pass_by(self, seconds: float) -> None:
        for entry in [entry for entry in self.pending if entry[0] <= seconds]:
            self.pending.remove(entry)
            entry[1](*entry[2])


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: timers)
    return timers


@pytest.mark.parametrize("grace_ms", [0, 8000])
def test_services_of_the_term_before_have_a_session_timeout_and_the_grace(
    timers: Timers, grace_ms: int
) -> None:
    expired: list[Member] = []
    sessions = Sessions(TIMEOUTS_MS, expired.append, grace_ms)
    sessions.restore(IMAGE)
    timers.pass_by((grace_ms + 499) / 1000)
    assert expired == []
    timers.pass_by((grace_ms + 1000) / 1000)
    assert set(expired) == {Member(Kind.COORDINATOR, "c"), Member(Kind.GATEWAY, "g")}
    timers.pass_by((grace_ms + 2000) / 1000)
    assert expired[-1] == Member(Kind.NODE, "1")
