"""Proposals of the ISR, and what a leader does with the controller's answers to them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse, IsrResult
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.storage.replica.isr_changes import IsrChanges
from barnabas.storage.replica.leader_state import Proposal
from barnabas.storage.replica.replica import Replica

INELIGIBLE = int(ErrorCode.ineligible_replica)


class Leader:
    """A replica that leads, as far as proposals go: it would have node 2 in the ISR, under its epoch by then."""

    topic_id, index, name = b"t" * 16, 0, "t-0"

    def __init__(self) -> None:
        self.epoch_of_2 = 7
        self.pending: Proposal | None = None

    def wider_isr(self, eligible: object) -> Proposal | None:
        if self.pending is not None:
            return None
        self.pending = Proposal(1, 3, ((1, 5), (2, self.epoch_of_2)))
        return self.pending

    def on_proposal_refused(self, _: Proposal) -> None:
        self.pending = None


@pytest.mark.parametrize("is_new_process", [True, False])
async def test_who_is_another_process_by_the_time_of_a_refusal_is_proposed_again(
    is_new_process: bool,
) -> None:
    """It fetched all there is while the controller did not answer, and fetches no more. Who is the same is not proposed
    over and over.
    """
    leader, asked = Leader(), list[list[tuple[int, int]]]()

    async def ask(request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked.append([(member.node_id, member.broker_epoch) for member in request.partitions[0].isr])
        if is_new_process:
            leader.epoch_of_2 = 8
        code = INELIGIBLE if (2, 7) in asked[-1] else 0
        partition = PartitionRecord(partition_epoch=3 if code else 4)
        return AlterPartitionResponse(results=[IsrResult(error_code=code, partition=partition)])

    image = cast(Any, lambda: SimpleNamespace(eligible_epochs={}, nodes={}))
    changes = IsrChanges(1, image)
    changes.look_at(cast(Replica, leader))
    running = asyncio.create_task(changes.run(ask))
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    assert asked == [[(1, 5), (2, 7)], [(1, 5), (2, 8)]][: 1 + is_new_process]


@pytest.mark.parametrize("lag_ms_max", [0, -1, -(2**63)])
async def test_where_no_lag_is_allowed_laggards_are_not_looked_for_all_the_time(lag_ms_max: int) -> None:
    """Kafka's setting has no bound; the loop would take a whole core."""
    looked = list[None]()

    def replicas() -> list[Replica]:
        looked.append(None)
        return []

    image = cast(Any, lambda: SimpleNamespace(eligible_epochs={}, nodes={}))
    watching = asyncio.create_task(IsrChanges(1, image).watch(replicas, lag_ms_max))
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == [], "it rests before each look"
    async with asyncio.timeout(20):
        while not looked:
            await asyncio.sleep(0.01)
    watching.cancel()
