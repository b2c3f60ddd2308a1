"""A broker is a gateway, a storage node and a coordinator: the harnesses of all are used here."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(UNIT / name) for name in ("gateway", "storage", "coordinator")]
