"""Asking the leaders of many partitions at once, for requests that are look-ups rather than streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
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
    ask: Callable[[StorageLink, list[MessageT]], Awaitable[Sequence[ResultT]]],
    failed: Callable[[ErrorCode], ResultT],
) -> list[ResultT]:
    """One result for each ref, in order. A leader that cannot be reached fails only its own partitions.

    `make_message(topic id, entry)` builds what a leader is sent for one partition, `ask` sends them.
    """
    image = request.image
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

    async def ask_one(leader: int, asked: list[tuple[int, MessageT]]) -> None:
        link = request.parts.links.storage(leader)
        try:
            if link is None:
                answers: Sequence[ResultT] = [failed(NOBODY_LEADS)] * len(asked)
            else:
                answers = await ask(link, [message for _, message in asked])
        except LinkError:
            answers = [failed(NOBODY_LEADS)] * len(asked)
        for (index, _), answer in zip(asked, answers, strict=True):
            results[index] = answer

    await asyncio.gather(*(ask_one(leader, asked) for leader, asked in by_leader.items()))
    return [result for result in results if result is not None]
