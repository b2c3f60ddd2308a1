"""What tests of resends share: requests by name, who leads, and what each node answers."""

from __future__ import annotations

from typing import Final

from gateway_harness import topic_records
from produce_connection import Preparing, settle

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult

NOT_LEADER: Final = ErrorCode.not_leader_or_follower
OUT_OF_ORDER: Final = ErrorCode.out_of_order_sequence_number

A, B, C, D = 10_000, 20_000, 30_000, 40_000
"""Requests by their timeouts in milliseconds, which are their batches' sequences as well."""


def leads(run: Preparing, *leaders: int) -> None:
    """The partitions of `orders` are led by these now."""
    run.gateway.metadata.apply(*topic_records("orders", list(leaders)))


def name_of(run: Preparing, number: int) -> tuple[int, int]:
    """(node, request) of what was sent: requests that are sent on have somewhat less time left."""
    node, left_ms = run.sent[number]
    return node, min((A, B, C, D), key=lambda name: abs(name - left_ms))


async def answer(run: Preparing, number: int, code: int = 0, *, never_appended: bool = False) -> None:
    """To what was sent as number `number`."""
    offset = -1 if code else number
    part = PartitionAppendResult(error_code=code, base_offset=offset, never_appended=never_appended)
    run.appends[run.sent[number]].set_result(AppendResult(partitions=[part]))
    await settle()
