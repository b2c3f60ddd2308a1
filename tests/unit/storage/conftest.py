"""What tests of a whole node share; also here for pytest to find the harnesses beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.config import StorageConfig


@pytest.fixture
def config(tmp_path: Path) -> StorageConfig:
    return StorageConfig(
        node_id=1,
        log_dirs=(str(tmp_path / "data"),),
        listen_address=f"unix:{tmp_path}/n",
        controllers=(f"unix:{tmp_path}/c",),
        broker_rack="east",
    )
