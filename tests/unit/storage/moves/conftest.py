"""A node with three log directories, that removes at once what a move has left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storage_harness import StorageHarness, run_node

from barnabas.storage import limits


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORMER_LOG_SECONDS", 0)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("a", "b", "c")]


@pytest.fixture
async def node(paths: list[Path], tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as harness:
        yield harness
