"""The controller: it stands by, leads when elected, and stands by again when deposed."""

from __future__ import annotations

import asyncio

from barnabas.controller.active import ActiveController, load_image
from barnabas.controller.config import ControllerConfig
from barnabas.controller.counts import ControllerCounts
from barnabas.controller.election import Election, LeadershipLost
from barnabas.controller.limits import STORE_RETRY_SECONDS_MAX, STORE_RETRY_SECONDS_MIN
from barnabas.controller.presence import Presence
from barnabas.controller.store.protocol import Store, StoreError
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.messages.controller_pb2 import DescribeQuorumResponse
from barnabas.metadata.history import HistoryRefused, check_continues, term_id
from barnabas.metadata.image import MetadataImage

log = get_logger("controller")


class Controller:
    """Owner of this process's part in the election, and of the term while it leads."""

    def __init__(
        self, store: Store, address: str, config: ControllerConfig, environment: Environment
    ) -> None:
        self.config = config
        self.environment = environment
        self._store = store
        self._address = address
        self._lines = RareLines(log, environment.clock.monotonic)
        self._presence = Presence(
            store,
            address,
            config.controller_id,
            config.election_lease_ms,
            self._lines,
            shared=bool(config.etcd_endpoints),
        )
        process_id = str(environment.new_id())
        self._election = Election(
            store, address, config.election_lease_ms, asyncio.get_running_loop().time, process_id
        )
        self._active: ActiveController | None = None
        self._known = MetadataImage()
        """What this process led with last: the store must continue it."""
        self.counts = ControllerCounts()

    @property
    def active(self) -> ActiveController | None:
        """The current term when this controller leads and is ready to serve."""
        return self._active if self._active is not None and self._active.is_ready else None

    @property
    def active_address(self) -> str:
        """Where the active controller is, as far as is known; empty when it is not."""
        return self._election.active_address

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return self.environment.clock.now_ms()

    def is_settled(self) -> bool:
        """Whether it leads, or stands by for one that does."""
        # Our own address there is a lease of our last life that has not run out yet, or a mistake (see Election).
        return self.active is not None or (
            self._active is None and self.active_address not in ("", self._address)
        )

    async def describe_quorum(self, active: ActiveController) -> DescribeQuorumResponse:
        """The controllers and those who follow them, in KRaft's terms. Raises LeadershipLost."""
        try:
            voters = await self._presence.everyone()
        except StoreError as error:
            raise LeadershipLost(f"the metadata store does not answer: {error}") from error
        return active.describe_quorum(self._presence.controller_id, voters)

    async def run(self) -> None:
        """Be there and take part in elections until cancelled. Raises WrongCluster."""
        await self._presence.join()
        keeping = asyncio.create_task(self._presence.keep(), name="presence")
        try:
            await self._lead_when_elected()
        finally:
            keeping.cancel()
            await self._presence.leave()

    async def _lead_when_elected(self) -> None:
        while True:
            pause = 0.0
            leadership = await self._election.campaign()
            try:
                image = await load_image(self._store, leadership)
                check_continues(image, self._known.revision, term_id(self._known))
                self._active = ActiveController(
                    self._store, leadership, image, self.config, self.environment, self.counts
                )
                log.info("this controller is active", revision=image.revision)
                await self._active.run(self._election, leadership)
            except LeadershipLost as error:
                log.warning("stepped down", reason=str(error))
            except HistoryRefused as error:
                self._lines.error(
                    "this controller does not lead: the store is not the one that it led with; restart the controller "
                    "to go on with this store",
                    reason=str(error),
                )
                pause = STORE_RETRY_SECONDS_MAX
            except StoreError as error:
                self._lines.warning("could not load the metadata", reason=str(error))
                pause = STORE_RETRY_SECONDS_MIN
            finally:
                if self._active is not None:
                    self._known = self._active.image
                self._active = None
                self._election.active_address = ""
                await self._election.resign(leadership)
            await asyncio.sleep(pause)
