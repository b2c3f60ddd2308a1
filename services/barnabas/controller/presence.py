"""Which controllers there are: each keeps a key in the store, under a lease, for as long as it lives.

The keys say who may become active and under which id DescribeQuorum shows it; elections do not look at them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
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
    Store,
    StoreError,
)
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines

PRESENCE_PREFIX: Final = "controllers/"
"""`controllers/<id>` holds the controller's address; not part of the metadata."""

RENEWALS_PER_LEASE: Final = 3

FIRST_ID: Final = 3000
"""The lowest id that a controller gives itself: above the ids that people give to brokers."""

log = get_logger("controller.presence")


class Presence:
    """Owner of this controller's id. `wanted_id` of -1 takes the lowest from FIRST_ID on that is free.

    A wanted one is not taken from whoever is present under it: mostly that is a former process of this controller,
    which had another address, and is gone when its lease ends.

    `shared` says whether other controllers use the same store: without them there is nothing to tell anyone.
    """

    def __init__(
        self, store: Store, address: str, wanted_id: int, lease_ms: int, lines: RareLines, *, shared: bool
    ) -> None:
        self._store = store
        self._address = address
        self._wanted_id = wanted_id
        self._lease_ms = lease_ms
        self._lines = lines
        self._shared = shared
        self._lease: Lease | None = None
        self._found_taken = 0
        """How often in a row another was found under the wanted id."""
        self.controller_id = wanted_id if wanted_id >= 0 else FIRST_ID

    async def join(self) -> None:
        """Take an id and tell the others; returns once the store has it, or says who else has the wanted one."""
        pause = STORE_RETRY_SECONDS_MIN
        while self._shared:
            try:
                self._lease = await self._store.grant_lease(self._lease_ms)
                self.controller_id = await self._take_id(self._lease)
            except (CompareFailed, LeaseLost):
                continue
            except StoreError as error:
                self._lines.warning("the metadata store does not answer", reason=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, STORE_RETRY_SECONDS_MAX)
            else:
                return

    async def keep(self) -> None:
        """Stay present until cancelled."""
        while self._lease is not None:
            await asyncio.sleep(self._lease.ttl_ms / 1000 / RENEWALS_PER_LEASE)
            await self.renew()

    async def renew(self) -> None:
        """Stay present for another lease, or become so if the wanted id has become free."""
        assert self._lease is not None, "it has joined"
        try:
            await self._store.keep_lease_alive(self._lease.lease_id)
            if self._found_taken:
                await self._take_id(self._lease)
        except LeaseLost:
            await self.join()
        except StoreError:
            pass  # the election says so in the log

    async def leave(self) -> None:
        """Let the others know at once that this controller is gone."""
        if self._lease is not None:
            with contextlib.suppress(StoreError):
                await self._store.revoke_lease(self._lease.lease_id)

    async def everyone(self) -> Mapping[int, str]:
        """The address of each controller that is there, by id. Raises StoreError."""
        if not self._shared:
            return {self.controller_id: self._address}
        snapshot = await self._store.snapshot(PRESENCE_PREFIX)
        found = {
            int(key.removeprefix(PRESENCE_PREFIX)): entry.value.decode()
            for key, entry in snapshot.entries.items()
        }
        return found | {self.controller_id: self._address}

    async def _take_id(self, lease: Lease) -> int:
        """Raises CompareFailed when another took the id in the same moment."""
        snapshot = await self._store.snapshot(PRESENCE_PREFIX)
        mine = {
            key
            for key, entry in snapshot.entries.items()
            if entry.value == self._address.encode()  # left by a former process of ours, which is gone
        }
        controller_id = self._wanted_id
        if controller_id < 0:
            controller_id = FIRST_ID
            while _key(controller_id) in snapshot.entries and _key(controller_id) not in mine:
                controller_id += 1
        key = _key(controller_id)
        known = snapshot.entries.get(key)
        if known is not None and key not in mine:
            self._on_taken(controller_id, known.value.decode())
            return controller_id
        compare: Compare = KeyAbsent(key) if known is None else ModRevisionEquals(key, known.mod_revision)
        await self._store.transact([compare], [Put(key, self._address.encode(), lease.lease_id)])
        self._found_taken = 0
        return controller_id

    def _on_taken(self, controller_id: int, address: str) -> None:
        """It is looked for at each renewal: one that has gone is found for no longer than its lease."""
        self._found_taken += 1
        if self._found_taken == 1:
            log.info(
                "waiting for the lease of the controller that has this id", id=controller_id, address=address
            )
        elif self._found_taken == 1 + LEASES_OF_THE_FORMER_MAX * RENEWALS_PER_LEASE:
            log.warning(
                "another controller has the same id: give each controller a controller.id of its own",
                id=controller_id,
                address=address,
            )


def _key(controller_id: int) -> str:
    return f"{PRESENCE_PREFIX}{controller_id}"
