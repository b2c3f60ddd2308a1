"""Nodes for tests in which something is held up while a replica's part changes."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from storage_harness import StorageHarness, run_node


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What holds something up until it is set."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def node(tmp_path: Path, go: threading.Event) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness
        go.set()


@pytest.fixture
async def threaded(tmp_path: Path, go: threading.Event) -> AsyncIterator[StorageHarness]:
    """A node with two log directories: all of its appends run in writer threads."""
    async with run_node(tmp_path / "a", tmp_path / "s", [tmp_path / "b"]) as harness:
        yield harness
        go.set()
