"""A client's own suite of tests: kafka-python's, whole. It is the quickest; `make suites` runs them all.

What comes of it stands in docs/client-suites.md. pip fetches the source distribution the first time; which Kafka the
tests are told of, the jars of `make jars` say.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

RUN: Final = Path(__file__).resolve().parents[1] / "suites" / "run.py"
SECONDS_MAX: Final = 400.0
"""Far above the half minute that it takes."""

PASSED_MIN: Final = 52
"""Of 67 tests; most of the others need security, and one passes on three brokers by chance."""


def test_kafka_python_passes_its_own_tests() -> None:
    command = [sys.executable, str(RUN), "kafka-python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^kafka-python: (\d+) passed, ", done.stdout, re.MULTILINE)
    assert passed, done.stdout
    assert int(passed[1]) >= PASSED_MIN, done.stdout
