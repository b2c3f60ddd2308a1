"""A coordinator that has gone is waited for on behalf of its clients, as it is back or replaced within a second or so.

A client that is sent to look for the coordinator finds this gateway again, and may be long about it. librdkafka closes
its connection and asks for the coordinator, behind a fetch that waits for records; a commit that it sends again fails
on the closed connection, and it looks anew. It sends no heartbeat in all those seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.gateway import limits
from barnabas.kernel.errors import KafkaError
from barnabas.links.errors import DeadlinePassed, LinkError, NotSentInTime, OutcomeUnknown, Unreachable
from barnabas.metadata.coordinators import owning_partition

if TYPE_CHECKING:
    from barnabas.gateway.request import Request

LinkT = TypeVar("LinkT")
ResponseT = TypeVar("ResponseT")


@dataclass(slots=True)
class _Gone:
    """A partition's coordinator gives no answer. Times are the event loop's, in seconds."""

    since: float
    last_seen: float


class Patience:
    """Owner of since when which partitions of internal topics have no coordinator that can be asked.

    The time runs for all requests together: in an outage that lasts, those of its third second are refused at once, for
    what a client has sent behind them on its connection waits as well.
    """

    def __init__(self) -> None:
        self._gone: dict[tuple[str, int], _Gone] = {}
        self._has_ended = False

    def end(self) -> None:
        """The gateway is about to stop: nothing is waited for any more, as clients are to go elsewhere."""
        self._has_ended = True

    async def ask(
        self,
        request: Request,
        topic: str,
        key: str,
        owner: Callable[[], LinkT],
        call: Callable[[LinkT], Awaitable[ResponseT]],
        *,
        may_repeat: bool,
    ) -> ResponseT:
        """What `owner()`, the coordinator that `key` of the internal `topic` belongs to, answers to `call`.

        A call that certainly was not carried out is made again until COORDINATOR_AWAITED_SECONDS after the coordinator
        had gone, or after the call had first failed where others have answers meanwhile; with `may_repeat` also one of
        which nobody knows. Where a coordinator had kept the call, as it keeps joins, that time begins anew, for
        COORDINATOR_OUTAGES_MAX outages. Raises KafkaError (nobody owns the key) or LinkError (who owns it gives no
        answer) then.
        """
        loop = asyncio.get_running_loop()
        failing_since, outages = 0.0, 0
        pause_seconds = limits.COORDINATOR_PAUSE_SECONDS_MIN
        with request.wait:
            while True:
                asked_at = loop.time()
                try:
                    answer = await call(owner())
                except (KafkaError, LinkError) as error:
                    seconds = loop.time() - asked_at
                    was_kept = isinstance(error, OutcomeUnknown) and seconds > limits.COORDINATOR_KEPT_SECONDS
                    if not outages or (was_kept and outages < limits.COORDINATOR_OUTAGES_MAX):
                        failing_since, outages = loop.time(), outages + 1
                        pause_seconds = limits.COORDINATOR_PAUSE_SECONDS_MIN
                    if isinstance(error, LinkError) and not _is_worth_repeating(error, may_repeat=may_repeat):
                        raise
                    if not self._is_awaited(_place(request, topic, key), failing_since):
                        raise
                else:
                    self.on_answer(request, topic, key)
                    return answer
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, limits.COORDINATOR_PAUSE_SECONDS_MAX)

    def on_answer(self, request: Request, topic: str, key: str) -> None:
        """The coordinator that `key` belongs to has given an answer: the next time that it is gone is another one."""
        if self._gone:
            self._gone.pop(_place(request, topic, key), None)

    def _is_awaited(self, place: tuple[str, int], failing_since: float) -> bool:
        now = asyncio.get_running_loop().time()
        if self._has_ended or place[1] < 0:
            return False
        gone = self._gone.get(place)
        if gone is None or now - gone.last_seen > limits.COORDINATOR_AWAITED_SECONDS:
            gone = self._gone[place] = _Gone(now, now)
        gone.last_seen = now
        return now < min(gone.since, failing_since) + limits.COORDINATOR_AWAITED_SECONDS


def _place(request: Request, topic: str, key: str) -> tuple[str, int]:
    """The topic and the partition of it that the key belongs to; -1 while there is no such topic."""
    partition = owning_partition(request.image, topic, key)
    return topic, -1 if partition is None else partition.partition


def _is_worth_repeating(error: LinkError, *, may_repeat: bool) -> bool:
    if isinstance(error, DeadlinePassed | NotSentInTime):
        return False  # it has been waited for
    return isinstance(error, Unreachable) or (may_repeat and isinstance(error, OutcomeUnknown))
