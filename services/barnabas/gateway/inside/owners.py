"""Who owns a group or a transactional id: the one coordinator that clients' requests about it are for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from barnabas.gateway.inside.by_coordinator import not_answered
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from barnabas.gateway.inside.links import Links
    from barnabas.gateway.request import Request
    from barnabas.links.coordinator_link import CoordinatorLink
    from barnabas.links.transactions_link import TransactionsLink

LinkT = TypeVar("LinkT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Owners(Generic[LinkT]):
    """The coordinators that own the partitions of an internal topic."""

    topic: str
    key: str
    """The field of a call's message by which its owner is found."""
    find: Callable[[Links, str], LinkT]
    """The link to the owner of a key. Raises KafkaError."""

    async def ask(
        self,
        request: Request,
        key: str,
        call: Callable[[LinkT], Awaitable[ResponseT]],
        refused: Callable[[ErrorCode], ResponseT],
        *,
        may_repeat: bool = False,
    ) -> ResponseT:
        """The answer of the owner of `key`, or `refused(code)` when it gives none.

        One that has gone is waited for a while; see `Patience.ask`, also for `may_repeat`. The code makes clients look
        up the coordinator again and retry: COORDINATOR_NOT_AVAILABLE.
        """
        links = request.parts.links
        try:
            return await request.parts.patience.ask(
                request, self.topic, key, lambda: self.find(links, key), call, may_repeat=may_repeat
            )
        except KafkaError as error:
            return refused(error.code)
        except LinkError as error:
            return refused(not_answered(request, error))

    def key_of(self, message: Any) -> str:
        """What says whom a message is for."""
        key: str = getattr(message, self.key)
        return key


GROUPS: Final[Owners[CoordinatorLink]] = Owners(
    GROUP_METADATA_TOPIC, "group_id", lambda links, group_id: links.coordinator_for_group(group_id)
)
TRANSACTIONS: Final[Owners[TransactionsLink]] = Owners(
    TRANSACTION_STATE_TOPIC,
    "transactional_id",
    lambda links, transactional_id: links.transactions_for(transactional_id),
)
