"""A service's own copy of the metadata, kept current by the controller's stream.

`MetadataSubscription` registers the service and replays what the controller streams. When the stream breaks, the
last image stays in use (the hot path never waits for a controller) and the subscription tries the given controllers
in turn until one, the active one, answers with a new snapshot. A snapshot that does not continue the image (see
`history`) is refused, and the image stays in use, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from barnabas.kernel.cancellation import run_apart
from barnabas.kernel.logs import get_logger
from barnabas.links.errors import OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.messages.controller_pb2 import MetadataDelta, WatchRequest
from barnabas.metadata.heartbeats import (
    GOODBYE_AGAIN_SECONDS,
    IN_TOUCH_SECONDS_MAX,
    heartbeat_of,
    say_goodbye,
    send_heartbeats,
)
from barnabas.metadata.history import HistoryRefused, check_continues, term_id
from barnabas.metadata.image import MetadataImage

if TYPE_CHECKING:
    from barnabas.links.controller_link import ControllerLink
    from barnabas.links.network import Network

RETRY_SECONDS_MIN: Final = 0.02
RETRY_SECONDS_MAX: Final = 0.5

UNANSWERED_SECONDS: Final = 3.0
"""How long no controller may answer before a line says so; at the start of a cluster it takes a moment."""

log = get_logger("metadata.subscription")


class RegistrationRefused(Exception):
    """The controller will never accept this registration: the data belongs to another cluster, say."""


class MetadataSubscription:
    """Owns the image of one process and the links to the controllers.

    `make_request` is called for each attempt, so that a registration can say what is true by then. Callbacks get
    (old image, new image), in order, on the event loop; they must not block.
    """

    def __init__(
        self, network: Network, controllers: Sequence[str], make_request: Callable[[], WatchRequest]
    ) -> None:
        assert controllers, "a service needs the address of at least one controller"
        self._network = network
        self._addresses = list(controllers)
        self._make_request = make_request
        self._links = [network.connect_controller(address) for address in self._addresses]
        self._active = 0
        self._image = MetadataImage()
        self._callbacks: list[Callable[[MetadataImage, MetadataImage], None]] = []
        self._changed = asyncio.Event()
        self._connected = False
        self._heard_at = -math.inf
        """When the controller heard of this service last, by the event loop's time: or earlier."""
        self._silent_since = math.inf
        self._lost_at = math.inf
        """When the stream to the controller broke, while there is none."""
        self._refused: str | None = None
        self._is_leaving = False
        """Whether it has said goodbye: it follows the metadata without being registered, from the next stream on."""
        self.refusals = 0
        """How often metadata were refused that do not continue this image."""

    @property
    def image(self) -> MetadataImage:
        """The newest image; empty (revision 0) until the first snapshot."""
        return self._image

    @property
    def is_current(self) -> bool:
        """Whether the stream to the controller is up and its snapshot has been replayed."""
        return self._connected

    @property
    def is_in_touch(self) -> bool:
        """Whether the controller has heard of this service so lately that it cannot have given it up as silent."""
        return self._connected and asyncio.get_running_loop().time() - self._heard_at <= IN_TOUCH_SECONDS_MAX

    @property
    def silent_seconds(self) -> float:
        """For how long no controller may have heard of this service."""
        since = self._heard_at if self._connected else self._lost_at
        return max(0.0, asyncio.get_running_loop().time() - since)

    @property
    def controller(self) -> ControllerLink:
        """The controller that answered last; calls to it go to the active controller or fail."""
        return self._links[self._active]

    def on_change(self, callback: Callable[[MetadataImage, MetadataImage], None]) -> None:
        """Call `callback(old, new)` after every change from now on."""
        self._callbacks.append(callback)

    async def wait_until(self, holds: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Return the first image for which `holds`; bound the wait with asyncio.timeout."""
        while not holds(self._image):
            self._changed.clear()
            await self._changed.wait()
        return self._image

    async def run(self) -> None:
        """Follow the controller until cancelled. Raises RegistrationRefused."""
        pause, loop = RETRY_SECONDS_MIN, asyncio.get_running_loop()
        self._silent_since = self._lost_at = loop.time()
        try:
            while True:
                reason = await self._watch()
                if self._connected:
                    pause = RETRY_SECONDS_MIN
                    log.warning("lost the controller", address=self._addresses[self._active], reason=reason)
                    self._connected = False
                    self._silent_since = self._lost_at = loop.time()
                elif loop.time() - self._silent_since > UNANSWERED_SECONDS:
                    addresses = ",".join(self._addresses)
                    log.warning("no controller answers", addresses=addresses, reason=reason)
                    self._silent_since = math.inf  # said once, until one answers
                self._active = (self._active + 1) % len(self._links)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_MAX)
        except asyncio.CancelledError:
            await self.say_goodbye()
            raise
        finally:
            for link in self._links:
                await link.close()

    async def say_goodbye(self) -> None:
        """Tell the controller that this service is about to stop; until it does it still follows the metadata."""
        self._is_leaving = True
        if self._connected:
            await say_goodbye(self.controller, self._make_request())

    async def leave(self, is_done: Callable[[MetadataImage], bool], seconds_max: float) -> None:
        """Say goodbye until the metadata show that others go on with what this service did, for so long at the most:
        while no controller answers, nobody will.
        """
        self._is_leaving = True  # also where nothing is said: it does not register again
        if is_done(self._image) or not self._connected:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while not is_done(self._image):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(GOODBYE_AGAIN_SECONDS):
                            await self.say_goodbye()
                            await self.wait_until(is_done)

    async def _watch(self) -> str:
        """Follow the active link until that ends, and return why it did. Raises RegistrationRefused."""
        try:
            await run_apart(self._replay_stream())
        except HistoryRefused as error:
            self._on_refused(str(error))
            return str(error)
        except Refused as refused:
            if refused.why is Refusal.NEVER_ACCEPTED:
                raise RegistrationRefused(str(refused)) from refused
            if refused.why is Refusal.OTHER_HISTORY:
                self._on_refused(str(refused))
            return str(refused)
        except (Unreachable, OutcomeUnknown) as error:
            await self._reopen()
            return str(error)
        return "the controller ended the stream"

    async def _replay_stream(self) -> None:
        """Replay what the controller streams, for as long as it answers heartbeats too.

        Raises LinkError when that is over, HistoryRefused for what does not continue the image.
        """
        controller, request = self.controller, WatchRequest()
        request.CopyFrom(self._make_request())
        if self._is_leaving:
            request = WatchRequest(cluster_id=request.cluster_id)
        request.known_revision, request.known_term_id = self._image.revision, term_id(self._image)
        heartbeat = heartbeat_of(request)
        heartbeats: asyncio.Task[None] | None = None
        try:
            async with asyncio.TaskGroup() as tasks, aclosing(controller.Watch(request)) as deltas:
                self._heard_at = asyncio.get_running_loop().time()
                async for delta in deltas:
                    if heartbeats is None and heartbeat is not None:
                        heartbeats = tasks.create_task(
                            send_heartbeats(controller, heartbeat, self._on_heard), name="heartbeats"
                        )
                    self._replay(delta)
                if heartbeats is not None:
                    heartbeats.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def _on_heard(self, at: float) -> None:
        self._heard_at = at

    def _on_refused(self, reason: str) -> None:
        """Keep the image, and say once why."""
        self.refusals += 1
        if self._refused is None:
            log.error(
                "this service keeps the metadata that it has: the controller's do not continue them. Bring the right "
                "metadata back, or restart this service to go on with the controller's",
                address=self._addresses[self._active],
                reason=reason,
            )
        self._refused = reason

    async def _reopen(self) -> None:
        """A fresh link connects at once, where one that failed may let its address rest for a moment."""
        old = self._links[self._active]
        self._links[self._active] = self._network.connect_controller(self._addresses[self._active])
        await old.close()

    def _replay(self, delta: MetadataDelta) -> None:
        """Raises HistoryRefused, with nothing changed."""
        old = self._image
        if delta.snapshot:
            image = MetadataImage().apply(delta.records, delta.revision)
            if old.cluster_id and image.cluster_id != old.cluster_id:
                raise HistoryRefused(f"the metadata are of cluster {image.cluster_id}, not {old.cluster_id}")
            check_continues(image, old.revision, term_id(old))
        elif delta.revision <= old.revision:
            raise HistoryRefused(f"a change of revision {delta.revision} came after revision {old.revision}")
        else:
            image = old.apply(delta.records, delta.revision)
        self._image = image
        self._refused = None
        self._connected = True
        for callback in self._callbacks:
            callback(old, self._image)
        self._changed.set()
