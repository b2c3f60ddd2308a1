"""A leader that was cut off from the controller hears what became of its partition, and not of what was in between."""

from __future__ import annotations

import uuid
from pathlib import Path

from nodes_in_one_process import Nodes, run_nodes, until
from storage_harness import batch, topic_records


def tell(nodes: Nodes, only: tuple[int, ...]) -> None:
    """The controller says to some what it has decided."""
    for node in only:
        nodes.running[node].apply(nodes._partition())


def proposed_by_leader(nodes: Nodes) -> list[list[int]]:
    proposals = nodes.running[1].harness.replicas.isr_changes._proposed.values()
    return [[node for node, _ in proposal.isr] for proposal in proposals]


async def test_a_replica_that_left_and_came_again_is_in_sync_by_nothing_that_it_had(tmp_path: Path) -> None:
    """It is the same process, whose log was deleted: in sync before it fetches it could be elected with nothing."""
    async with run_nodes(tmp_path, 3) as nodes:
        nodes.tell(
            topic_records("others", uuid.uuid4(), replicas=(1, 2, 3))
        )  # the nodes' streams go on for it
        nodes.replica(1).appending.append(batch(b"v"), 0, -1)
        await nodes.until_equal()
        nodes.record.replicas[:] = [1, 2]
        nodes.elect(1, [1, 2], only=[2, 3])
        gone = nodes.running[3].harness.replicas
        await until(lambda: gone.find(nodes.topic_id.bytes, 0) is None and gone.is_idle)
        nodes.record.replicas[:] = nodes.ids
        nodes.record.adding_replicas[:] = [3]
        nodes.record.partition_epoch += 1
        tell(nodes, only=(2, 3))
        await nodes.running[3].harness.until_open()
        assert nodes.end(3) == 0
        tell(nodes, only=(1,))
        assert proposed_by_leader(nodes) == []
        await nodes.until_equal()
        await until(lambda: proposed_by_leader(nodes) == [[1, 2, 3]])
        assert nodes.end(3) == 1
