"""Here for pytest to find the module beside it: the message that tests in several folders print."""

from __future__ import annotations
