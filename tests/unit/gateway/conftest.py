"""What the tests of all wings share; also here for pytest to find the modules beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jumping_time import jumping_time


@pytest.fixture
async def time_jumps() -> AsyncIterator[None]:
    """Nothing takes time but what waits for it."""
    with jumping_time():
        yield
