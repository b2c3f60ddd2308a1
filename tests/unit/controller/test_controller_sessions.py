"""How long services may be away: after their stream broke, and when another controller takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.controller.fanout import Receiver
from barnabas.controller.limits import (
    CAME_BACK_SECONDS,
    PRESENT_SECONDS,
    SILENCE_CHECK_SECONDS,
    SILENCE_MS_MIN,
)
from barnabas.controller.sessions import AlreadyRegistered, Kind, Member, Sessions
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage

GATEWAY_MS = 300
TIMEOUTS_MS = {Kind.NODE: 2000, Kind.GATEWAY: GATEWAY_MS, Kind.COORDINATOR: 500}
GATEWAY = Member(Kind.GATEWAY, "g")

IMAGE = MetadataImage().apply(
    [
        md.MetadataRecord(key="nodes/1", node=md.NodeRecord(node_id=1, incarnation_id="a", address="n1")),
        md.MetadataRecord(key="gateways/g", gateway=md.GatewayRecord(gateway_id="g", incarnation_id="a")),
        md.MetadataRecord(
            key="coordinators/c", coordinator=md.CoordinatorRecord(coordinator_id="c", incarnation_id="a")
        ),
    ],
    1,
)


class Timers:
    """An event loop's timers that go off when told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pending: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []

    def call_later(
        self, seconds: float, callback: Callable[..., None], *arguments: object
    ) -> SimpleNamespace:
        entry = (seconds, callback, arguments)
        self.pending.append(entry)
        return SimpleNamespace(cancel=lambda: self.pending.remove(entry))

    def time(self) -> float:
        return self.now

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
    coordinator, gateway_ms = Member(Kind.COORDINATOR, "c"), max(grace_ms, 1000) + GATEWAY_MS
    timers.pass_by((min(grace_ms + 500, gateway_ms) - 1) / 1000)
    assert expired == []
    timers.pass_by((grace_ms + 500) / 1000)
    assert coordinator in expired
    timers.pass_by((gateway_ms - 1) / 1000)
    assert grace_ms or expired == [coordinator]
    timers.pass_by(gateway_ms / 1000)
    assert set(expired) == {coordinator, GATEWAY}
    timers.pass_by((grace_ms + 2000) / 1000)
    assert expired[-1] == Member(Kind.NODE, "1")


NODE = Member(Kind.NODE, "1")


class Ended:
    """A member's receiver: why its stream was ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def end(self, reason: str) -> None:
        self.reasons.append(reason)


async def attached(expired: list[Member], receiver: Ended) -> Sessions:
    sessions = Sessions(TIMEOUTS_MS, expired.append)
    await sessions.attach(NODE, "a", cast(Receiver, receiver))
    return sessions


def check_for(sessions: Sessions, timers: Timers, seconds: float) -> None:
    """Let time pass as it does in a controller that is not held up."""
    for _ in range(round(seconds / SILENCE_CHECK_SECONDS)):
        timers.now += SILENCE_CHECK_SECONDS
        sessions.check_for_silence()


async def test_a_service_whose_heartbeats_stay_away_is_gone_though_its_stream_is_open(timers: Timers) -> None:
    expired: list[Member] = []
    receiver = Ended()
    sessions = await attached(expired, receiver)
    assert sessions.heard_from(NODE, "a")
    check_for(sessions, timers, SILENCE_MS_MIN / 1000)
    assert (expired, sessions.is_attached(NODE)) == ([], True)
    check_for(sessions, timers, SILENCE_CHECK_SECONDS)
    assert (expired, sessions.is_attached(NODE), len(receiver.reasons)) == ([NODE], False, 1)
    assert not sessions.heard_from(NODE, "a"), "it is told to register again"
    sessions.detach(NODE, cast(Receiver, receiver))
    timers.pass_by(1_000)
    assert expired == [NODE], "it is given up once"
    await sessions.attach(NODE, "a", cast(Receiver, Ended()))
    assert sessions.heard_from(NODE, "a")


async def test_a_service_that_is_heard_stays_and_one_that_sends_no_heartbeats_is_judged_by_its_stream(
    timers: Timers,
) -> None:
    expired: list[Member] = []
    sessions = await attached(expired, Ended())
    check_for(sessions, timers, 60)
    for _ in range(60):
        assert sessions.heard_from(NODE, "a")
        check_for(sessions, timers, 1)
    assert (expired, sessions.is_attached(NODE)) == ([], True)


async def test_who_has_a_stream_and_is_silent_is_not_present(timers: Timers) -> None:
    """The kernel keeps the stream of a frozen process."""
    sessions = await attached([], Ended())
    assert sessions.is_present(NODE, "a"), "its registration is a word of it"
    check_for(sessions, timers, PRESENT_SECONDS + SILENCE_CHECK_SECONDS)
    assert not sessions.is_present(NODE, "a")
    sessions.heard_from(NODE, "a")
    assert sessions.is_present(NODE, "a")
    check_for(sessions, timers, PRESENT_SECONDS)
    assert sessions.is_present(NODE, "a")
    check_for(sessions, timers, SILENCE_CHECK_SECONDS)
    assert not sessions.is_present(NODE, "a")
    assert sessions.is_attached(NODE), "and yet it is not given up"


async def test_present_is_a_process_that_has_a_stream(timers: Timers) -> None:
    receiver = Ended()
    sessions = await attached([], receiver)
    assert not sessions.is_present(NODE, "b")
    assert not sessions.is_present(Member(Kind.NODE, "2"), "a")
    sessions.detach(NODE, cast(Receiver, receiver))
    assert not sessions.is_present(NODE, "a")


async def test_who_took_the_place_of_another_process_just_came_back(timers: Timers) -> None:
    sessions, receiver = await attached([], Ended()), Ended()
    assert sessions.just_came_back(Kind.NODE) == [], "nobody had to do without it"
    other = Member(Kind.NODE, "2")
    await sessions.attach(other, "x", cast(Receiver, receiver), is_known=True)
    timers.now += 1
    await sessions.attach(Member(Kind.NODE, "0"), "y", cast(Receiver, Ended()), is_known=True)
    await sessions.attach(Member(Kind.GATEWAY, "g"), "", cast(Receiver, Ended()), is_known=True)
    assert sessions.just_came_back(Kind.NODE) == ["2", "0"], "in that order"
    sessions.detach(other, cast(Receiver, receiver))
    timers.now += CAME_BACK_SECONDS - 1
    await sessions.attach(other, "x", cast(Receiver, Ended()), is_known=True)
    assert sessions.just_came_back(Kind.NODE) == ["0"], "a new stream makes no new process"


async def test_who_was_there_before_this_controller_did_not_just_come_back(timers: Timers) -> None:
    sessions = Sessions(TIMEOUTS_MS, lambda _: None)
    sessions.restore(IMAGE)
    await sessions.attach(NODE, "a", cast(Receiver, Ended()), is_known=True)
    assert sessions.just_came_back(Kind.NODE) == []
    sessions.restore(IMAGE)
    await sessions.attach(NODE, "b", cast(Receiver, Ended()), is_known=True)
    assert sessions.just_came_back(Kind.NODE) == ["1"], "another process of it"


async def test_a_controller_that_was_frozen_takes_nobody_for_silent(timers: Timers) -> None:
    sessions = await attached([], Ended())
    sessions.heard_from(NODE, "a")
    check_for(sessions, timers, SILENCE_CHECK_SECONDS)
    timers.now += 600
    assert sessions.is_present(NODE, "a")
    sessions.check_for_silence()
    assert sessions.is_present(NODE, "a")
    check_for(sessions, timers, PRESENT_SECONDS)
    assert not sessions.is_present(NODE, "a")


async def test_a_heartbeat_of_another_process_counts_for_nobody(timers: Timers) -> None:
    sessions = await attached([], Ended())
    assert not sessions.heard_from(NODE, "b")
    assert not sessions.heard_from(Member(Kind.NODE, "2"), "a")


async def test_a_controller_that_was_frozen_blames_nobody_for_it(timers: Timers) -> None:
    expired: list[Member] = []
    sessions = await attached(expired, Ended())
    sessions.heard_from(NODE, "a")
    check_for(sessions, timers, 1)
    timers.now += 600
    sessions.check_for_silence()
    assert expired == []
    check_for(sessions, timers, SILENCE_MS_MIN / 1000)
    assert expired == [NODE], "and gives up those that stay silent now"


@pytest.mark.parametrize("is_said_first", [True, False])
async def test_a_service_that_was_stopped_is_no_warning(
    timers: Timers, caplog: pytest.LogCaptureFixture, is_said_first: bool
) -> None:
    """Its stream's end and its word may come in either order; a process that was killed says nothing."""
    expired: list[Member] = []
    receiver = Ended()
    sessions = await attached(expired, receiver)
    if is_said_first:
        sessions.on_leaving(NODE, "a")
    sessions.detach(NODE, cast(Receiver, receiver))
    sessions.on_leaving(NODE, "another life")
    if not is_said_first:
        sessions.on_leaving(NODE, "a")
    timers.pass_by(2)
    assert expired == [NODE]
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []

    sessions = await attached(expired, receiver)
    sessions.detach(NODE, cast(Receiver, receiver))
    timers.pass_by(2)
    assert "a service did not come back" in caplog.text


async def test_a_gateway_that_is_not_heard_of_any_more_holds_up_no_other_process_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It owns nothing. One that is there stays, and so does a node, whose logs the other one may be writing to."""
    former = Ended()
    sessions = Sessions(dict.fromkeys(Kind, 1), lambda _: None)
    for member in (GATEWAY, NODE):
        await sessions.attach(member, "a", cast(Receiver, former))
        with pytest.raises(AlreadyRegistered):
            await sessions.attach(member, "b", cast(Receiver, Ended()))
    monkeypatch.setattr("barnabas.controller.sessions.PRESENT_SECONDS", -1)
    with pytest.raises(AlreadyRegistered):
        await sessions.attach(NODE, "b", cast(Receiver, Ended()))
    await sessions.attach(GATEWAY, "b", cast(Receiver, Ended()))
    assert sessions.on_leaving(GATEWAY, "b")
    assert not sessions.on_leaving(GATEWAY, "a")
    sessions.close()


async def test_gateways_do_not_say_of_which_process_a_heartbeat_is() -> None:
    """Those of an earlier version have no incarnation."""
    sessions = Sessions(dict.fromkeys(Kind, 1), lambda _: None)
    for member in (GATEWAY, NODE):
        await sessions.attach(member, "a", cast(Receiver, Ended()))
        assert sessions.heard_from(member, "a")
        assert not sessions.heard_from(member, "b")
    assert sessions.heard_from(GATEWAY, "")
    assert not sessions.heard_from(NODE, "")
    sessions.close()


async def test_a_gateway_that_a_term_finds_is_the_process_that_says_goodbye(timers: Timers) -> None:
    sessions = Sessions(TIMEOUTS_MS, lambda _: None)
    sessions.restore(IMAGE)
    assert sessions.on_leaving(GATEWAY, "a")
    assert not sessions.on_leaving(GATEWAY, "")
