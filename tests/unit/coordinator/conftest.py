"""Here for pytest to find the modules beside it: what the tests of runtime and groups share."""

from __future__ import annotations
