"""A Fetch that finds what it asks for, as a straight function from bytes to bytes.

A consumer that reads what was written before is answered at once, again and again, and pays for each answer with what a
general server does around it: tasks, futures, decoded objects, messages. So where every partition of a plain request
(`wire/plain_fetch.py`) is led by the storage node in this very process, and enough is there in memory, plain calls make
the answer before `data_received` returns. Where too little is there it waits by function calls as well, and is read
again when its wait is over. Whatever is not so is left to the general way before anything has changed:
`handlers/fetch.py` answers it, opens and ends its session, and tells its errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final

from barnabas.gateway.clients.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    WantedPartition,
)
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.clients.listeners import PORT_PER_NODE
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.handlers.fetch import by_topic, for_session
from barnabas.gateway.isolation import IsolationLevel
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.logs import get_logger
from barnabas.links.local_storage import LocalStorage, Read, ReadWait, Sought
from barnabas.metadata.image import MetadataImage
from barnabas.wire.fetch import API_KEY, TOPIC_ID_FROM, FetchedPartition, encode_fetch_response
from barnabas.wire.plain_fetch import PlainFetch, read_plain_fetch

log = get_logger("gateway.plain_fetch")

_ISOLATION_LEVELS: Final = frozenset(map(int, IsolationLevel))

Wanted = dict[PartitionKey, WantedPartition]


class PlainFetches:
    """Owns nothing: what a session was told is kept with the session."""

    def __init__(
        self, parts: GatewayParts, local: LocalStorage, metrics: RequestMetrics, faults: Faults
    ) -> None:
        self._parts = parts
        self._read = local.read_at_once
        self._observe = metrics.observe_at_once
        self._faults = faults
        self._shows_nodes = parts.config.advertise == PORT_PER_NODE
        self._is_addressed = parts.config.own_position_only >= 0
        """Whether all clients here mean the node of this process, where they tell nodes apart."""

    def answer(
        self, frame: bytes, received: float, _: object = None
    ) -> list[bytes | memoryview] | LaterFetch | None:
        """The pieces of the answer to the request in `frame`, which was read at `received` (perf_counter), or the wait
        for them. None, with nothing changed, when it must go the general way.
        """
        found = self.find(frame)
        if isinstance(found, list):
            self._observe(API_KEY, _version(frame), len(frame), received)
            return found
        return None if found is None else LaterFetch(self, frame, found)

    def find(self, frame: bytes, wait: ReadWait | None = None) -> list[bytes | memoryview] | ReadWait | None:
        """The answer, or the wait for it: the same `wait` again, where it went on."""
        if self._faults.is_active:
            return None
        plain = read_plain_fetch(frame)
        if plain is None or plain.isolation_level not in _ISOLATION_LEVELS:
            return None
        if plain.rack and self._shows_nodes and not self._is_addressed:
            return None  # which node it means decides which one is read from (KIP-392)
        # Of a partition that is named twice the last counts, as in Kafka; any negative epoch means that none is known.
        named = {
            (topic, index): WantedPartition(topic, index, offset, max_bytes, max(-1, epoch), last_epoch)
            for topic, index, offset, max_bytes, epoch, last_epoch in plain.partitions
        }
        session = None
        wanted = named
        if plain.session_id != NO_SESSION or plain.session_epoch != FINAL_EPOCH:
            session = self._session(plain)
            if session is None:
                return None
            wanted = session.partitions | named
            if not self._parts.fetch_sessions.may_grow(session, len(wanted) - len(session.partitions)):
                return None
        reads = self._read_all(plain, wanted.values(), wait)
        if not isinstance(reads, list):
            if reads is not None and session is not None:
                self._parts.fetch_sessions.keep(session, self._parts.clock.now_ms())
            return reads
        found = _found(wanted, reads, committed=plain.isolation_level == IsolationLevel.READ_COMMITTED)
        if session is not None:
            found = self._tell(session, plain, named, found)
        return encode_fetch_response(
            plain.version,
            plain.correlation_id,
            list(by_topic(found)),
            session_id=NO_SESSION if session is None else session.session_id,
        )

    def _session(self, plain: PlainFetch) -> FetchSession | None:
        """The session that the request goes on with, as it is; None for one that begins, ends or is refused."""
        if plain.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return None
        session = self._parts.fetch_sessions.peek(plain.session_id)
        if session is None or session.epoch != plain.session_epoch:
            return None
        return session if session.uses_topic_ids is (plain.version >= TOPIC_ID_FROM) else None

    def _read_all(
        self, plain: PlainFetch, wanted: Iterable[WantedPartition], wait: ReadWait | None
    ) -> list[Read] | ReadWait | None:
        image = self._parts.metadata.image
        sought = []
        for want in wanted:
            topic_id = want.topic if isinstance(want.topic, bytes) else _topic_id(image, want.topic)
            if topic_id is None or want.max_bytes < 0:
                return None
            sought.append(
                Sought(
                    topic_id,
                    want.partition,
                    want.fetch_offset,
                    want.max_bytes,
                    want.current_leader_epoch,
                    want.last_fetched_epoch,
                )
            )
        bytes_max = self._parts.unread_answers.fetch_bytes_max()
        if plain.max_bytes < 0 or not bytes_max or not sought:
            return None
        return self._read(
            sought,
            min_bytes=plain.min_bytes,
            max_bytes=min(plain.max_bytes, self._parts.config.fetch_max_bytes, bytes_max),
            committed=plain.isolation_level == IsolationLevel.READ_COMMITTED,
            max_wait_ms=plain.max_wait_ms,
            rack_id=plain.rack.decode(errors="replace") if plain.rack and self._shows_nodes else "",
            wait=wait,
        )

    def _tell(
        self,
        session: FetchSession,
        plain: PlainFetch,
        named: Wanted,
        found: list[tuple[PartitionKey, FetchedPartition]],
    ) -> list[tuple[PartitionKey, FetchedPartition]]:
        """Move the session on; returns what its client does not know yet."""
        now_ms = self._parts.clock.now_ms()
        sessions = self._parts.fetch_sessions
        sessions.use(
            plain.session_id, plain.session_epoch, uses_topic_ids=session.uses_topic_ids, now_ms=now_ms
        )
        sessions.update(session, named.values(), ())
        return for_session(session, list(session.partitions.values()), found, is_full=False)


class LaterFetch:
    """The wait for one answer (`clients.later.Later`): owns the read that waits in the storage node.

    Of the request it keeps the frame alone, which is read again in the end: thousands wait at a time, and each garbage
    collection walks all that is kept for them.
    """

    __slots__ = ("_began", "_fetches", "_frame", "_on_answer", "_times", "_wait")

    def __init__(self, fetches: PlainFetches, frame: bytes, wait: ReadWait) -> None:
        self._fetches = fetches
        self._frame = frame
        self._wait = wait
        self._times: RequestTimes
        self._on_answer: Callable[[Pieces], None]

    def start(self, times: RequestTimes, on_answer: Callable[[Pieces], None]) -> None:
        """See `Later`."""
        self._began = asyncio.get_running_loop().time()
        self._times = times
        self._on_answer = on_answer
        self._wait.on_over = self._on_over
        times.api_key = API_KEY
        times.api_version = _version(self._frame)
        times.started = times.received
        times.local_seconds = perf_counter() - times.received

    def _on_over(self) -> None:
        began = perf_counter()
        times = self._times
        try:
            found = self._fetches.find(self._frame, self._wait)
        except Exception:
            log.exception("a fetch that waited failed")
            found = None
        if found is self._wait:
            return  # too little has come, or it was taken back
        self._wait.end()
        times.answered = perf_counter()
        times.local_seconds += times.answered - began
        if found is None:
            times.waited_ms = int((asyncio.get_running_loop().time() - self._began) * 1000)
        assert found is None or isinstance(found, list), "a wait goes on as the same"
        self._on_answer(found)

    def stop(self) -> None:
        """See `Later`."""
        self._wait.end()


def _version(frame: bytes) -> int:
    """The version of the request in a frame."""
    return int.from_bytes(frame[2:4])


def _topic_id(image: MetadataImage, name: str) -> bytes | None:
    topic = image.topics.get(name)
    return None if topic is None else topic.topic_id


def _found(
    wanted: Iterable[PartitionKey], reads: list[Read], *, committed: bool
) -> list[tuple[PartitionKey, FetchedPartition]]:
    return [
        (
            key,
            FetchedPartition(
                key[1],
                0,
                read.high_watermark,
                read.last_stable_offset,
                read.log_start_offset,
                read.records,
                read.aborted_transactions if committed else None,
            ),
        )
        for key, read in zip(wanted, reads, strict=True)
    ]
