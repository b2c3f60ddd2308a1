"""Who is the active controller: the one whose lease holds the election key.

Every write compares the key's revision, so a controller that lost the key, and may not know it yet, can write
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from barnabas.controller.limits import (
    LEASES_OF_THE_FORMER_MAX,
    STORE_RETRY_SECONDS_MAX,
    STORE_RETRY_SECONDS_MIN,
)
from barnabas.controller.store.protocol import (
    Compare,
    CompareFailed,
    KeyAbsent,
    Lease,
    LeaseLost,
    ModRevisionEquals,
    Put,
    RevisionCompacted,
    Store,
    StoreError,
)
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines

ELECTION_KEY: Final = "election"
"""Holds process id and address of the active controller; not part of the metadata."""

log = get_logger("controller.election")


class LeadershipLost(Exception):
    """This controller is not the active one any more, or cannot know whether it is."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Proof of being the active controller, good for as long as the compare holds."""

    lease: Lease
    revision: int

    @property
    def compare(self) -> Compare:
        """What every write must compare."""
        return ModRevisionEquals(ELECTION_KEY, self.revision)


class Election:
    """Takes part in the election as the process `process_id`, which others reach at `address`.

    Only the id tells processes apart: an address may be given twice by mistake, and a process that starts in the place
    of one that crashed waits until that one's lease has ended.
    """

    def __init__(
        self, store: Store, address: str, lease_ms: int, now: Callable[[], float], process_id: str
    ) -> None:
        """`now` is the time of the store's leases: real seconds, whatever a test makes of the clock."""
        assert process_id, "an election without process ids has no winner"
        assert "@" not in process_id, process_id
        self._store = store
        self._address = address
        self._process_id = process_id
        self._lease_ms = lease_ms
        self._now = now
        self._lines = RareLines(log, now)
        self.active_address = ""
        self._former = ""
        """The other process that was seen last under our address."""
        self._is_doubted = False
        """Whether it was said that it is not gone."""

    async def campaign(self) -> Leadership:
        """Wait until this controller is the active one."""
        pause = STORE_RETRY_SECONDS_MIN
        while True:
            try:
                leadership = await self._try_once()
            except RevisionCompacted:
                continue
            except StoreError as error:
                self._lines.warning("the metadata store does not answer", reason=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, STORE_RETRY_SECONDS_MAX)
                continue
            pause = STORE_RETRY_SECONDS_MIN
            if leadership is not None:
                self.active_address = self._address
                return leadership

    async def keep(self, leadership: Leadership) -> None:
        """Keep the lease alive until it cannot be. Raises LeadershipLost."""
        lease = leadership.lease
        interval = pause = lease.ttl_ms / 3000
        kept_at = self._now()
        while True:
            await asyncio.sleep(pause)
            asked_at = self._now()
            try:
                await self._store.keep_lease_alive(lease.lease_id)
                kept_at, pause = asked_at, interval
            except LeaseLost as error:
                raise LeadershipLost(str(error)) from error
            except StoreError as error:
                log.warning("the lease could not be kept alive", reason=str(error))
                if (self._now() - kept_at) * 1000 >= lease.ttl_ms:
                    raise LeadershipLost(
                        "the metadata store did not answer for the time of the lease"
                    ) from error
                pause = interval / 4  # another member of the store may answer, while the lease still holds

    async def resign(self, leadership: Leadership) -> None:
        """Let another controller take over at once."""
        with contextlib.suppress(StoreError):
            await self._store.revoke_lease(leadership.lease.lease_id)

    async def _try_once(self) -> Leadership | None:
        snapshot = await self._store.snapshot(ELECTION_KEY)
        holder = snapshot.entries.get(ELECTION_KEY)
        compare: Compare
        if holder is None:
            compare = KeyAbsent(ELECTION_KEY)
        else:
            process_id, _, address = holder.value.decode().rpartition("@")
            if process_id != self._process_id:
                await self._stand_by(process_id, address, snapshot.revision)
                return None
            # A former term of this process, which could not give its lease back: that term has ended.
            compare = ModRevisionEquals(ELECTION_KEY, holder.mod_revision)
        lease = await self._store.grant_lease(self._lease_ms)
        value = f"{self._process_id}@{self._address}".encode()
        put = Put(ELECTION_KEY, value, lease.lease_id)
        try:
            revision = await self._store.transact([compare], [put])
        except CompareFailed:
            await self._store.revoke_lease(lease.lease_id)
            return None
        return Leadership(lease, revision)

    async def _stand_by(self, process_id: str, active_address: str, revision: int) -> None:
        """Return when the election key changes."""
        doubt: asyncio.TimerHandle | None = None
        if active_address == self._address:
            self._expect_end(process_id)
            # Anew whenever the store was away: no lease ends meanwhile.
            loop, seconds = asyncio.get_running_loop(), LEASES_OF_THE_FORMER_MAX * self._lease_ms / 1000
            doubt = loop.call_later(seconds, self._doubt_end, process_id)
        elif active_address != self.active_address:
            log.info("standing by", active=active_address)
        self.active_address = active_address
        try:
            async with aclosing(self._store.watch(revision + 1, ELECTION_KEY)) as watch:  # type: ignore[type-var]
                await anext(watch, None)
        finally:
            if doubt is not None:
                doubt.cancel()
        self.active_address = ""

    def _expect_end(self, process_id: str) -> None:
        """Another process holds the key under our address: as a rule the one that was here before, and is gone."""
        if process_id != self._former:
            self._former, self._is_doubted = process_id, False
            log.info(
                "waiting for the lease of this controller's former process to end", address=self._address
            )

    def _doubt_end(self, process_id: str) -> None:
        """It has kept its lease for longer than one that is gone could."""
        if not self._is_doubted and process_id == self._former:
            self._is_doubted = True
            log.warning(
                "another process is active under the address of this controller: give each controller an "
                "advertised_address of its own",
                address=self._address,
                process=process_id,
            )
