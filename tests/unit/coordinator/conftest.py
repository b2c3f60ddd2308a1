"""Here for pytest to find the modules beside it: what the tests of runtime and groups share."""

from __future__ import annotations

import pytest
from log_in_memory import LogInMemory


@pytest.fixture(params=[False, True], ids=["elsewhere", "here"])
def log(request: pytest.FixtureRequest) -> LogInMemory:
    """The storage nodes, elsewhere or in the coordinator's process, where they have an append before it returns."""
    log = LogInMemory()
    log.is_here = request.param
    return log
