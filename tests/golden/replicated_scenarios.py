"""The session with three brokers, in the order in which it is played: importing this module puts it on the list."""

from __future__ import annotations

import replicated_all_there  # isort: skip
import replicated_directories  # isort: skip
import replicated_transactions  # isort: skip
import replicated_one_away  # isort: skip
import replicated_two_away  # isort: skip

__all__ = [
    "replicated_all_there",
    "replicated_directories",
    "replicated_one_away",
    "replicated_transactions",
    "replicated_two_away",
]
