"""The checker is the simulation's; clients' tools are those of the integration tests."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

sys.path[:0] = [str(TESTS / "simulation"), str(TESTS / "integration")]
