"""Progress bars for long work: on stderr, and only when that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
"""Called with how much more has been done."""


@contextlib.contextmanager
def progress_bar(label: str, total: int | None, *, unit: str = "records") -> Iterator[Advance]:
    """A bar for `total` steps (None: not known) while the context is open; without a terminal it does nothing.

    `unit` is "records", or "bytes" to show sizes and speeds in bytes.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.update(task, advance=steps)
