"""Which registered services are there: a service is while its stream is, and for a session timeout after.

An open stream alone proves little, for the kernel keeps that of a frozen process, and what waits to be written to it
hides gRPC's own probes. So services send heartbeats, and one whose heartbeats stay away is treated as gone.

A controller that becomes active gives every service that it finds in the metadata the same time to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from barnabas.controller.fanout import Receiver
from barnabas.controller.limits import (
    CAME_BACK_SECONDS,
    FOUND_GATEWAY_GRACE_MS,
    PRESENT_SECONDS,
    SILENCE_CHECK_SECONDS,
    SILENCE_MS_MIN,
)
from barnabas.kernel.logs import get_logger
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import RETRY_SECONDS_MAX

log = get_logger("controller.sessions")

assert FOUND_GATEWAY_GRACE_MS >= 2 * RETRY_SECONDS_MAX * 1000


class Kind(Enum):
    """The kinds of services that register."""

    NODE = "storage node"
    GATEWAY = "gateway"
    COORDINATOR = "coordinator"


class Member(NamedTuple):
    """A registered service: node ids are written as text."""

    kind: Kind
    name: str


class AlreadyRegistered(Exception):
    """Another process with the same id is there, and stayed there."""


@dataclass(slots=True, eq=False)
class _Session:
    incarnation_id: str
    receiver: Receiver | None = None
    attached_at: float = 0.0
    """When it registered, by the event loop's clock."""
    came_back_at: float = -math.inf
    """When this process took the place of one before it; long ago where it is not known to have."""
    heard_at: float | None = None
    """When the last heartbeat came, by the event loop's clock; None for a service that has not sent any yet."""
    expiry: asyncio.TimerHandle | None = None
    is_leaving: bool = False
    """Whether it said that it is being stopped. Its time to come back is the same, for it may be started again; what a
    coordinator owned may be others' by that time."""
    detached: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """Owner of the sessions of one term of the active controller.

    `on_expired` is called once for each member that did not come back in time; it must ask `is_attached` again
    when it acts, for the member may have come by then. Members of the term before have `takeover_grace_ms` more.
    """

    def __init__(
        self,
        timeouts_ms: dict[Kind, int],
        on_expired: Callable[[Member], None],
        takeover_grace_ms: int = 0,
    ) -> None:
        self._timeouts_ms = timeouts_ms
        self._takeover_grace_ms = takeover_grace_ms
        self._on_expired = on_expired
        self._sessions: dict[Member, _Session] = {}
        self._closed = False
        self._checked_at = -1.0

    def restore(self, image: MetadataImage) -> None:
        """Start the clock for all services that the metadata says are there."""
        for node in image.live_nodes():
            self._await_return(
                Member(Kind.NODE, str(node.node_id)), node.incarnation_id, self._takeover_grace_ms
            )
        for name, gateway in image.gateways.items():
            grace_ms = max(self._takeover_grace_ms, FOUND_GATEWAY_GRACE_MS)
            self._await_return(Member(Kind.GATEWAY, name), gateway.incarnation_id, grace_ms)
        for name, coordinator in image.coordinators.items():
            self._await_return(
                Member(Kind.COORDINATOR, name), coordinator.incarnation_id, self._takeover_grace_ms
            )

    def is_attached(self, member: Member) -> bool:
        session = self._sessions.get(member)
        return session is not None and session.receiver is not None

    def is_present(self, member: Member, incarnation_id: str) -> bool:
        """Whether that process of it has a stream, and was heard from within PRESENT_SECONDS.

        The kernel keeps the stream of a frozen process, which would do nothing with what it is given.
        """
        session = self._sessions.get(member)
        if session is None or session.receiver is None or session.incarnation_id != incarnation_id:
            return False
        now = asyncio.get_running_loop().time()
        last_word_at = session.attached_at if session.heard_at is None else session.heard_at
        return now - last_word_at - self._held_up_seconds(now) <= PRESENT_SECONDS

    def just_came_back(self, kind: Kind) -> list[str]:
        """The names of those whose process took another one's place within CAME_BACK_SECONDS, in that order."""
        since = asyncio.get_running_loop().time() - CAME_BACK_SECONDS
        sessions = self._sessions.items()
        came_back = [(each.came_back_at, member.name) for member, each in sessions if member.kind is kind]
        return [name for at, name in sorted(came_back) if at > since]

    def is_awaited(self, member: Member) -> bool:
        """Whether the member is away, and may come back before it is given up."""
        session = self._sessions.get(member)
        return session is not None and session.receiver is None

    def is_going(self, member: Member) -> bool:
        """Whether the member is away, or has said that it is being stopped."""
        session = self._sessions.get(member)
        return session is not None and (session.receiver is None or session.is_leaving)

    def attached(self, kind: Kind) -> Iterator[tuple[str, Receiver]]:
        """Name and receiver of each member of one kind that has a stream now."""
        for member, session in self._sessions.items():
            if member.kind is kind and session.receiver is not None:
                yield member.name, session.receiver

    async def attach(
        self, member: Member, incarnation_id: str, receiver: Receiver, *, is_known: bool = False
    ) -> None:
        """The member has a stream, which replaces an older one of the same process. `is_known`: it registered before,
        this process or another.

        A new process waits for the old one's stream to end, for a session timeout at most. Raises
        AlreadyRegistered.
        """
        session = self._sessions.get(member)
        if session is not None and session.incarnation_id != incarnation_id and self._is_in_place(member):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeouts_ms[member.kind] / 1000):
                    await session.detached.wait()
            session = self._sessions.get(member)
            if self._is_in_place(member):
                raise AlreadyRegistered(
                    f"another process is registered as {member.kind.value} {member.name}: stop it, or take another id"
                )
        if session is not None:
            if session.expiry is not None:
                session.expiry.cancel()
            if session.receiver is not None:
                session.receiver.end("this service opened a newer stream")
        now = asyncio.get_running_loop().time()
        came_back_at = now if is_known else -math.inf
        if session is not None and session.incarnation_id == incarnation_id:
            came_back_at = session.came_back_at
        self._sessions[member] = _Session(
            incarnation_id, receiver, attached_at=now, came_back_at=came_back_at
        )

    def _is_in_place(self, member: Member) -> bool:
        """Whether another process has to wait. Of a gateway, which owns nothing, the stream of a process that is not
        heard of any more holds up nobody.
        """
        session = self._sessions.get(member)
        if session is None or session.receiver is None:
            return False
        return member.kind is not Kind.GATEWAY or self.is_present(member, session.incarnation_id)

    def detach(self, member: Member, receiver: Receiver) -> None:
        """The member's stream ended: start the clock, unless a newer stream took its place."""
        session = self._sessions.get(member)
        if session is None or session.receiver is not receiver:
            return
        log.info("lost a service", kind=member.kind.value, name=member.name)
        session.detached.set()
        self._await_return(member, session.incarnation_id, is_leaving=session.is_leaving)

    def heard_from(self, member: Member, incarnation_id: str) -> bool:
        """A heartbeat came; False when there is no such session: the service is to register again. Those of gateways
        do not say of which process they are.
        """
        session = self._sessions.get(member)
        if session is None or session.receiver is None:
            return False
        if session.incarnation_id != incarnation_id and (incarnation_id or member.kind is not Kind.GATEWAY):
            return False
        session.heard_at = asyncio.get_running_loop().time()
        return True

    def on_leaving(self, member: Member, incarnation_id: str) -> bool:
        """The service is being stopped; its stream has ended, or will in a moment. False for another process of it."""
        session = self._sessions.get(member)
        if session is not None and session.incarnation_id == incarnation_id:
            session.is_leaving = True
            return True
        return False

    async def watch_for_silence(self) -> None:
        """Give up services whose heartbeats stay away, until cancelled."""
        while True:
            await asyncio.sleep(SILENCE_CHECK_SECONDS)
            self.check_for_silence()

    def check_for_silence(self) -> None:
        """Give up services that are silent for their session timeout, and for SILENCE_MS_MIN at least."""
        now = asyncio.get_running_loop().time()
        held_up = self._held_up_seconds(now)
        self._checked_at = now
        for member, session in list(self._sessions.items()):
            if session.receiver is None or session.heard_at is None:
                continue
            session.heard_at = min(now, session.heard_at + held_up)
            silent_ms = (now - session.heard_at) * 1000
            if silent_ms > max(self._timeouts_ms[member.kind], SILENCE_MS_MIN):
                self._give_up(member, session, int(silent_ms))

    def _held_up_seconds(self, now: float) -> float:
        """How long it was this controller that heard nothing: services' heartbeats may lie in its sockets."""
        late = 0.0 if self._checked_at < 0 else now - self._checked_at - SILENCE_CHECK_SECONDS
        return late if late > SILENCE_CHECK_SECONDS else 0.0

    def _give_up(self, member: Member, session: _Session, silent_ms: int) -> None:
        """As if the stream had ended a session timeout ago: nothing more is waited for."""
        log.warning("a service is silent", kind=member.kind.value, name=member.name, silent_ms=silent_ms)
        assert session.receiver is not None, "only those with a stream can be silent"
        session.receiver.end("the controller has heard nothing for too long: register again")
        session.detached.set()
        del self._sessions[member]
        self._on_expired(member)

    def end_stream(self, member: Member, reason: str) -> None:
        """Have the member come again, if it is there; until then it is awaited like any other."""
        session = self._sessions.get(member)
        if session is not None and session.receiver is not None:
            session.receiver.end(reason)

    def close(self) -> None:
        """The term is over: no session expires any more."""
        for session in self._sessions.values():
            if session.expiry is not None:
                session.expiry.cancel()
        self._sessions.clear()
        self._closed = True

    def _await_return(
        self, member: Member, incarnation_id: str, grace_ms: int = 0, *, is_leaving: bool = False
    ) -> None:
        if self._closed:
            return
        timeout_ms = self._timeouts_ms[member.kind] + grace_ms
        expiry = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire, member)
        former = self._sessions.get(member)
        came_back_at = -math.inf if former is None else former.came_back_at
        self._sessions[member] = _Session(
            incarnation_id, came_back_at=came_back_at, expiry=expiry, is_leaving=is_leaving
        )

    def _expire(self, member: Member) -> None:
        session = self._sessions.pop(member)
        say = log.info if session.is_leaving else log.warning
        say("a service did not come back", kind=member.kind.value, name=member.name)
        self._on_expired(member)
