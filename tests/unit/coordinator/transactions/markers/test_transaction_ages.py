"""For how long transactions are open, and for how long they are decided without all of their partitions knowing it."""

from __future__ import annotations

from log_in_memory import LogInMemory
from transaction_node import TransactionNode, a_world, running, settle


def ages(node: TransactionNode) -> tuple[float | None, float | None]:
    """(of the oldest that is open, of the oldest that waits for markers), in seconds."""
    open_, unmarked = (
        node.registry.get_sample_value(f"barnabas_coordinator_oldest_{what}_transaction_seconds")
        for what in ("ongoing", "unmarked")
    )
    return open_, unmarked


async def test_the_oldest_counts_from_its_beginning_and_then_from_its_decision(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    async with running(node):
        assert ages(node) == (0.0, 0.0)
        producer = await node.open("t-0")
        node.clock.advance(5_000)
        await node.open("t-1", transactional_id="b")
        node.clock.advance(2_000)
        assert ages(node) == (7.0, 0.0)
        await node.end("a", producer)
        await settle()
        node.clock.advance(3_000)
        assert ages(node) == (5.0, 3.0)
        node.post.thaw("1")
        await settle()
        assert ages(node) == (5.0, 0.0)
