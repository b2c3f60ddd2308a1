"""A folder with a path that is short enough for sockets; here also for pytest to find the modules beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        yield Path(path)
