"""What asyncio's TaskGroup forgets up to Python 3.12."""

from __future__ import annotations

import asyncio


def cancelled_all_the_same() -> None:
    """Raise CancelledError if the current task was asked to end.

    For who goes on after an error that left a TaskGroup. Where the task is cancelled while the group waits for its
    other tasks to end, the group raises the error alone, and nobody asks a second time.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
