"""A follower for each test, and something that holds it up."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from scripted_leader import Follower, run_follower


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What holds something up until it is set."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def follower(tmp_path: Path, go: threading.Event) -> AsyncIterator[Follower]:
    async with run_follower(tmp_path / "a") as running:
        yield running
        go.set()


@pytest.fixture
async def threaded(tmp_path: Path, go: threading.Event) -> AsyncIterator[Follower]:
    """With two log directories: all appends run in writer threads."""
    async with run_follower(tmp_path / "a", [tmp_path / "b"]) as running:
        yield running
        go.set()
