"""Here for pytest to find the module beside it: the harness that all tests of the storage node share."""

from __future__ import annotations
