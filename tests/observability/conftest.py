"""Makes the integration tests' clusters and the generator of rules and dashboards importable here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from running_cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]

sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "deploy" / "observability")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster of `barnabas up` with one node."""
    from running_cluster import Cluster

    with Cluster() as running:
        yield running
