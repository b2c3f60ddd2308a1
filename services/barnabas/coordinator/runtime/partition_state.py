"""What a partition's owner can do for its clients at the moment."""

from __future__ import annotations

import enum
from typing import Final


class PartitionState(enum.Enum):
    LOADING = "loading"
    SERVING = "serving"
    READ_ONLY = "read only"
    """Loaded, but the log takes no writes, or is being read again: what needs no write is served."""
    CLOSED = "closed"


LOADED: Final = frozenset({PartitionState.SERVING, PartitionState.READ_ONLY})
