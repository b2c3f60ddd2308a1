"""franz-go, a client that speaks the protocol in Go without librdkafka: produce, consume, groups, administration.

The scenarios are in clients/go; they use a release that Go 1.19 (Debian 12) still builds. `make suites` runs the
newest release's own tests.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from client_scenarios import CLIENTS, Outcomes, run_scenarios
from running_cluster import require_program

pytestmark = pytest.mark.integration

SOURCE: Final = CLIENTS / "go"
SCENARIOS: Final = re.findall(r'^\t\t"(\w+)": +\w+,$', (SOURCE / "main.go").read_text(), re.MULTILINE)

BUILD_SECONDS_MAX: Final = 300.0
"""The first time, modules are fetched and all of them compiled."""


@pytest.fixture(scope="module")
def outcomes(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    program: Path = tmp_path_factory.mktemp("go-client") / "goclient"
    build = [require_program("go"), "build", "-o", str(program), "."]
    done = subprocess.run(
        build, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return run_scenarios([str(program), cluster.bootstrap])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_go_client(outcomes: Outcomes, scenario: str) -> None:
    outcomes.check(scenario)
