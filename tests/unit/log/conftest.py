"""Here for pytest to find the module beside it: the faulty disk that tests in several folders share."""

from __future__ import annotations
