"""What is simulated imports no more than a service does; and the store's contract is tested where the others' is."""

from __future__ import annotations

import sys
from pathlib import Path

CONTRACT = Path(__file__).resolve().parents[1] / "unit" / "controller" / "store"

sys.path.insert(0, str(CONTRACT))
