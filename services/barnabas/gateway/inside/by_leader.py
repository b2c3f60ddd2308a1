"""Asking the leaders of many partitions at once, for requests that are look-ups rather than streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import DeadlinePassed, LinkError, NotSentInTime, Refused
from barnabas.links.storage_link import StorageLink
from barnabas.metadata.leaders import NOBODY_LEADS, led_partition

MessageT = TypeVar("MessageT")
ResultT = TypeVar("ResultT")


class PartitionRef(NamedTuple):
    """A partition that a request names, by topic name or id, and the request's own entry for it."""

    topic_name: str | None
    topic_id: bytes | None
    partition: int
    entry: Any


async def call_leaders(
    request: Request,
    refs: Sequence[PartitionRef],
    make_message: Callable[[bytes, Any], MessageT],
    ask: Callable[[StorageLink, list[MessageT], float], Awaitable[Sequence[ResultT]]],
    failed: Callable[[ErrorCode], ResultT],
    *,
    calls_max: int = limits.LOOK_UP_CALLS_MAX,
) -> list[ResultT]:
    """One result for each ref, in order. A leader that cannot be reached fails only its own partitions.

    `make_message(topic id, entry)` builds what a leader is sent for one partition, `ask` sends them and has so many
    seconds for it. It is called up to `calls_max` times: a connection that breaks says nothing of who leads. That of a
    node that was started anew may only be found out by the first call after it, and clients that have one question
    refused and the next one answered are known to make of both what is not so.
    """
    image, loop = request.image, asyncio.get_running_loop()
    ends_at = loop.time() + request.timeout_seconds
    results: list[ResultT | None] = [None] * len(refs)
    by_leader: dict[int, list[tuple[int, MessageT]]] = {}
    for index, ref in enumerate(refs):
        topic = ref.topic_name if ref.topic_name is not None else ref.topic_id or b""
        record = led_partition(image, topic, ref.partition)
        if isinstance(record, ErrorCode):
            results[index] = failed(record)
        else:
            message = make_message(record.topic_id, ref.entry)
            by_leader.setdefault(record.leader, []).append((index, message))

    async def ask_one(leader: int, messages: list[MessageT]) -> Sequence[ResultT]:
        seconds = request.timeout_seconds
        for _ in range(calls_max):
            link = request.parts.links.storage(leader)
            if link is None or seconds <= 0:
                break
            try:
                return await ask(link, messages, seconds)
            except (DeadlinePassed, NotSentInTime, Refused):
                break
            except LinkError:
                seconds = ends_at - loop.time()
        return [failed(NOBODY_LEADS)] * len(messages)

    async def fill_in(leader: int, asked: list[tuple[int, MessageT]]) -> None:
        answers = await ask_one(leader, [message for _, message in asked])
        for (index, _), answer in zip(asked, answers, strict=True):
            results[index] = answer

    with request.wait:
        await asyncio.gather(*(fill_in(leader, asked) for leader, asked in by_leader.items()))
    return [result for result in results if result is not None]
