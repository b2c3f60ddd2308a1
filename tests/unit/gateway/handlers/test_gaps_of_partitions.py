"""What comes behind a refused batch waits for it, whichever partition of a request it is that was refused."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from gateway_harness import request_frame
from produce_connection import EITHER_WAY, PRODUCE, VERSION, Preparing, settle
from resent import NOT_LEADER, OUT_OF_ORDER, A, B, C, answer, leads, name_of

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult
from barnabas.records.batch import parse_header
from barnabas.records.record import encode_batch

pytestmark = pytest.mark.usefixtures("time_jumps")


def frame(sequences: Mapping[int, int]) -> bytes:
    """A request with a batch for each partition, of this sequence."""
    data = [
        {
            "index": partition,
            "records": encode_batch(
                [(0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence
            ),
        }
        for partition, sequence in sequences.items()
    ]
    topics = [{"name": "orders", "partition_data": data}]
    body = {"acks": -1, "timeout": 30_000, "transactional_id": None, "topic_data": topics}
    return request_frame(PRODUCE, VERSION, body)


@EITHER_WAY
async def test_a_gap_is_not_used_up_by_the_batch_that_is_missing(forwards: bool) -> None:
    """It comes again, and is refused again, for another partition of its request has no leader."""
    run = Preparing(prepares=False, forwards=forwards)
    appends = run.gateway.node(2).appends
    sent, send = [], appends.send

    def note(request: Any, *rest: Any) -> Any:
        sent.extend(
            (item.partition, parse_header(bytes(records)).base_sequence)
            for item, records in zip(request.partitions, request.records, strict=True)
        )
        return send(request, *rest)

    appends.send = note
    leads(run, -1, 2)  # and 2 knows nothing of the producer
    for _ in range(2):
        for sequences in ({0: 0}, {0: 1, 1: 0}, {1: 1}, {1: 2}, {1: 3}):
            sending = frame(sequences)
            run.connection.data_received(struct.pack(">i", len(sending)) + sending)
            await settle()
        await asyncio.sleep(0.11)
    assert len(run.transport.written) >= 5
    assert sent == []


@EITHER_WAY
@pytest.mark.parametrize("first", [OUT_OF_ORDER, NOT_LEADER])
async def test_what_is_refused_behind_another_partition_is_not_overtaken_in_its_own(
    forwards: bool, first: ErrorCode
) -> None:
    """What is behind it there is under way, and comes back when its client has sent it again."""
    run = Preparing(prepares=False, forwards=forwards)
    leads(run, 1, 1)
    await run.produce(A)
    await run.produce(B, partitions=(0, 1))
    await run.produce(C, partitions=(1,))
    refused = [PartitionAppendResult(error_code=code, base_offset=-1) for code in (first, NOT_LEADER)]
    run.appends[run.sent[1]].set_result(AppendResult(partitions=refused))
    await settle()
    leads(run, 1, 2)
    await answer(run, 0, ErrorCode.request_timed_out)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    await run.produce(A)
    await run.produce(B, partitions=(0, 1))
    await answer(run, 2, NOT_LEADER)
    await asyncio.sleep(limits.RESEND_PAUSE_SECONDS * 3)
    on_second_node = [name_of(run, number) for number, (node, _) in enumerate(run.sent) if node == 2]
    assert on_second_node in ([], [(2, B)])
