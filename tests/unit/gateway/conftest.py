"""Here for pytest to find the modules beside it: what the tests of all wings share."""

from __future__ import annotations
