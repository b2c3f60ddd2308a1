"""Incremental fetch sessions (KIP-227): a client names its partitions once and afterwards only what changed.

Sessions live in the gateway that made them, and end with the connection that opened them. A client whose connection
moves is told that its session is unknown and starts a new one, as after the loss of a broker.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode, KafkaError

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

TopicKey = str | bytes
"""A topic as the client names it: by name, or from version 13 by id (16 bytes)."""
PartitionKey = tuple[TopicKey, int]


@dataclass(slots=True)
class WantedPartition:
    """What a client wants of one partition, and what it was last told."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    told: tuple[int, int, int] | None = None
    """(high watermark, last stable offset, log start offset) of the last answer; None: tell it in any case."""
    was_late: bool = False
    """Whether its leader had not answered when the client was last told of others."""

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.partition)


@dataclass(slots=True)
class FetchSession:
    """Owns the partitions of one client's session, in the order in which they are to be read.

    The epoch rises with each request, so that a repeated or lost request is noticed.
    """

    session_id: int
    epoch: int
    uses_topic_ids: bool
    connection_id: int = 0
    """The connection that opened it."""
    partitions: OrderedDict[PartitionKey, WantedPartition] = field(default_factory=OrderedDict)
    last_used_ms: int = 0

    def update(self, changed: Iterable[WantedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add or change partitions, then drop the forgotten ones."""
        for wanted in changed:
            known = self.partitions.get(wanted.key)
            if known is not None:
                wanted.told, wanted.was_late = known.told, known.was_late
            self.partitions[wanted.key] = wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def advance(self) -> None:
        """Expect the next epoch; after the highest comes 1 again."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Read these last the next time, so that partitions without data are not starved by those with much."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchSessions:
    """Owns all sessions of this gateway: at most `slots_max` of them, with so many partitions together as limits say.

    A new session may take the place of one that was not used for `idle_ms`; with no such one the client simply gets no
    session and keeps naming all its partitions.
    """

    def __init__(self, slots_max: int, randomness: random.Random, idle_ms: int = 120_000) -> None:
        self._slots_max = slots_max
        self._random = randomness
        self._idle_ms = idle_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._by_connection: dict[int, set[int]] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        wanted: Iterable[WantedPartition],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        connection_id: int = 0,
    ) -> FetchSession | None:
        """A new session, or None when there is no room."""
        named = {want.key: want for want in wanted}
        if len(named) > limits.FETCH_SESSION_PARTITIONS_MAX or not self._make_room(len(named), now_ms):
            return None
        session_id = self._random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, INITIAL_EPOCH, uses_topic_ids, connection_id, last_used_ms=now_ms)
        session.update(named.values(), ())
        session.advance()
        self._sessions[session_id] = session
        self._by_connection.setdefault(connection_id, set()).add(session_id)
        self._partition_count += len(named)
        return session

    def use(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session, for an incremental request with this epoch.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.advance()
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def may_grow(self, session: FetchSession, partition_count: int) -> bool:
        """Whether there is room for so many more partitions in a session."""
        return (
            len(session.partitions) + partition_count <= limits.FETCH_SESSION_PARTITIONS_MAX
            and self._partition_count + partition_count <= limits.FETCH_SESSIONS_PARTITIONS_MAX
        )

    def update(
        self, session: FetchSession, changed: Iterable[WantedPartition], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add or change partitions of a session that is in use, then drop the forgotten ones.

        Raises KafkaError, FETCH_SESSION_ID_NOT_FOUND, when there is no room: the session has ended, and the client
        opens another or gets none.
        """
        count = len(session.partitions)
        session.update(changed, forgotten)
        grown = len(session.partitions) - count
        self._partition_count += grown
        if grown > 0 and not self.may_grow(session, 0):
            self.close(session.session_id)
            raise KafkaError(ErrorCode.fetch_session_id_not_found)

    def peek(self, session_id: int) -> FetchSession | None:
        """The session as it is, without using it."""
        return self._sessions.get(session_id)

    def keep(self, session: FetchSession, now_ms: int) -> None:
        """It is in use: a request of it waits."""
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

    def close(self, session_id: int) -> None:
        """Forget a session; one that is not known is no error."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._partition_count -= len(session.partitions)
        opened = self._by_connection[session.connection_id]
        opened.discard(session_id)
        if not opened:
            del self._by_connection[session.connection_id]

    def close_of_connection(self, connection_id: int) -> None:
        """The connection has ended, and its sessions with it: no client goes on with one on another."""
        for session_id in list(self._by_connection.get(connection_id, ())):
            self.close(session_id)

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        """For one more session; the longest unused go if they are idle."""
        while (
            len(self._sessions) >= self._slots_max
            or self._partition_count + partition_count > limits.FETCH_SESSIONS_PARTITIONS_MAX
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < self._idle_ms:
                return False
            self.close(oldest.session_id)
        return True
