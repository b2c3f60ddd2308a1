"""A node that asks coordinators which a test plays; also here for pytest to find the module beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_coordinators import FakeCoordinators, Producer, apply_coordinator
from storage_harness import StorageHarness, run_node


@pytest.fixture
def coordinators() -> FakeCoordinators:
    return FakeCoordinators()


@pytest.fixture
async def node(tmp_path: Path, coordinators: FakeCoordinators) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s", network=coordinators.network) as harness:
        apply_coordinator(harness)
        yield harness


@pytest.fixture
async def producer(node: StorageHarness) -> Producer:
    return Producer(node, await node.create_topic(partitions=2))
