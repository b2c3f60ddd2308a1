"""What a run of all tests leaves out, and what the programs that tests start are given."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
ONLY_BY_NAME: Final = frozenset({TESTS / "containers", TESTS / "kubernetes"})
"""Folders that run when they are named: they need an engine or root, some minutes, and the machine's network."""


def pytest_configure() -> None:
    """Let programs be interrupted, as from a terminal: a job that a script began in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave those folders out of a run that names neither them nor something in them."""
    if collection_path not in ONLY_BY_NAME:
        return None
    named = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return None if any(each.resolve().is_relative_to(collection_path) for each in named) else True
