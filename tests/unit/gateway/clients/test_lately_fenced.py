"""Brokers whose nodes were fenced a moment ago: Metadata goes on showing them, with nothing to lead."""

from __future__ import annotations

import pytest
from gateway_harness import Gateway, node_record, small_cluster

from barnabas.gateway import limits
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import node_key

METADATA, DESCRIBE_CLUSTER = 3, 60


def change(gateway: Gateway, *records: MetadataRecord) -> None:
    before = gateway.metadata.image
    gateway.metadata.apply(*records)
    gateway.parts.lately_fenced.on_metadata(before, gateway.metadata.image)


async def shown(gateway: Gateway) -> tuple[list[int], int]:
    answer = await gateway.ask(METADATA, 9, {"topics": []})
    return [broker.node_id for broker in answer.brokers], answer.controller_id


async def test_a_broker_is_shown_for_a_moment_after_its_node_was_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka forgets one that is missing, and with it the partitions that the same answer moves to another."""
    gateway = Gateway(small_cluster())
    assert await shown(gateway) == ([1, 2], 1), "the third has been fenced for long"
    change(gateway, node_record(1, fenced=True))
    assert await shown(gateway) == ([2, 1], 2), "who is away takes no administration"
    described = await gateway.ask(DESCRIBE_CLUSTER, 0, {})
    assert [broker.broker_id for broker in described.brokers] == [2]
    change(gateway, node_record(2, fenced=False, rack="west"))
    assert await shown(gateway) == ([2, 1], 2)
    monkeypatch.setattr(limits, "FENCED_SHOWN_SECONDS", 0.0)
    assert await shown(gateway) == ([2], 2)


async def test_one_that_came_back_or_was_forgotten_is_shown_for_what_it_is() -> None:
    gateway = Gateway(small_cluster())
    change(gateway, node_record(1, fenced=True))
    change(gateway, node_record(1))
    assert await shown(gateway) == ([1, 2], 1)
    assert gateway.parts.lately_fenced.still_shown() == []
    change(gateway, node_record(2, fenced=True))
    change(gateway, MetadataRecord(key=node_key(2)))
    assert await shown(gateway) == ([1], 1)
