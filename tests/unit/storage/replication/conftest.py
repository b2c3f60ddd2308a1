"""Here for pytest to find the module beside it."""

from __future__ import annotations
