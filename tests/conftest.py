"""What a run of all tests leaves out, what the programs that tests start are given, and Hypothesis' profile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

TESTS: Final = Path(__file__).parent
ONLY_BY_NAME: Final = frozenset({TESTS / "containers", TESTS / "kubernetes"})
"""Folders that run when they are named: they need an engine or root, some minutes, and the machine's network."""


# gRPC would stop and start its threads around every fork of this process, which breaks the child where one of them is
# at work: PySpark starts its JVM by such a fork. It has to be said before gRPC is loaded; no child of ours uses gRPC
# before it is another program.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# How long an example takes says more of the machine than of the code: a busy one is no failure. What Hypothesis itself
# has chosen (in CI: always the same examples) stays.
settings.register_profile("barnabas", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("barnabas")


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
