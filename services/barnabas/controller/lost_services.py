"""Whether a service whose stream broke is there: its process has ended if its address refuses connections.

A machine refuses connections on behalf of a process that is no more, and keeps silent, or takes them, for one that is
frozen or behind a cut. So who is refused waits for nobody. Whatever else goes wrong (a name that is not found, no way
to the machine, a connection that breaks) says nothing of the process, and the session timeout is left to it. So it is
left to a pod that was deleted, with whose address went the machine that would refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.controller.limits import PROBE_PAUSE_SECONDS, PROBE_PAUSE_SECONDS_MIN, PROBE_SECONDS_MAX
from barnabas.kernel.logs import get_logger
from barnabas.links.errors import ConnectionRefused, LinkError
from barnabas.messages.storage_pb2 import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from barnabas.links.network import Network

log = get_logger("controller.lost_services")

NameT = TypeVar("NameT", int, str)


class LostServices(Generic[NameT]):
    """Owner of one task for each service of one kind that is away.

    `address_of` says where a service is to be reached for as long as it is awaited, and None after. `on_ended` is
    called with each one whose process has ended, again and again until it is not awaited any more: what others can take
    over may change in that time.
    """

    def __init__(
        self,
        kind: str,
        network: Network,
        address_of: Callable[[NameT], str | None],
        on_ended: Callable[[NameT], Awaitable[None]],
    ) -> None:
        """`kind` is what the log calls them."""
        self._kind = kind
        self._network = network
        self._address_of: Callable[[NameT], str | None] = address_of
        self._on_ended: Callable[[NameT], Awaitable[None]] = on_ended
        self._tasks: dict[NameT, asyncio.Task[None]] = {}
        self._later: list[asyncio.TimerHandle] = []

    def look_for(self, name: NameT) -> None:
        """The service's stream broke, or it was not heard of since this term began."""
        former = self._tasks.get(name)
        if former is None or former.done():
            self._tasks[name] = task = asyncio.create_task(
                self._look_for(name), name=f"probes of {self._kind} {name}"
            )
            task.add_done_callback(lambda _: self._forget(name, task))

    def look_for_later(self, name: NameT, after_seconds: float) -> None:
        """The service was not heard of since this term began, and has so long to come."""
        loop = asyncio.get_running_loop()
        self._later.append(loop.call_later(after_seconds, self.look_for, name))

    def close(self) -> None:
        """The term is over."""
        for handle in self._later:
            handle.cancel()
        for task in list(self._tasks.values()):
            task.cancel()

    def _forget(self, name: NameT, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _look_for(self, name: NameT) -> None:
        is_told, pause = False, PROBE_PAUSE_SECONDS_MIN
        while (address := self._address_of(name)) is not None:
            if await _has_ended(self._network, address) and self._address_of(name) == address:
                if not is_told:
                    log.info("a service's process has ended", kind=self._kind, name=name, address=address)
                    is_told = True
                await self._on_ended(name)
            await asyncio.sleep(pause)
            pause = min(pause * 2, PROBE_PAUSE_SECONDS)


async def _has_ended(network: Network, address: str) -> bool:
    """Whether connections to the address are refused. Who is there and is no storage node knows no such call."""
    link = network.connect_storage(address, reads_for_clients=False)
    try:
        await link.OffsetForLeaderEpoch(OffsetForLeaderEpochRequest(), timeout=PROBE_SECONDS_MAX)
    except ConnectionRefused:
        return True
    except LinkError:
        return False
    finally:
        await link.close()
    return False
