"""The quickest of the clients' own suites of tests (`make suites` runs them all)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

RUN: Final = Path(__file__).resolve().parents[1] / "suites" / "run.py"
SECONDS_MAX: Final = 600.0


def test_kafka_python_passes_its_own_tests() -> None:
    command = [sys.executable, str(RUN), "kafka-python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, " in done.stdout
