"""The Java client of Kafka 4.3, newest versions of every request: records, groups, transactions, administration.

The scenarios are in clients/java; all of them pass against Apache Kafka 4.3.1 too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from client_scenarios import CLIENTS, Outcomes, run_scenarios
from kafka_tools import JARS, START_QUICKLY

pytestmark = pytest.mark.integration

SOURCES: Final = [
    CLIENTS / "java" / name
    for name in ("JavaClient.java", "JavaAdmin.java", "JavaTransactions.java", "Scenarios.java")
]
SCENARIOS: Final = sorted(
    name for source in SOURCES for name in re.findall(r'(?:scenarios|all)\.put\("(\w+)"', source.read_text())
)


@pytest.fixture(scope="module")
def outcomes(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    classes: Path = tmp_path_factory.mktemp("java-client")
    assert any(JARS.glob("kafka-clients-*.jar")), f"{JARS} is empty: `make jars` fetches Kafka's client"
    compiler = ["javac", "-d", str(classes), "-cp", f"{JARS}/*", *map(str, SOURCES)]
    done = subprocess.run(compiler, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return run_scenarios(
        ["java", *START_QUICKLY, "-cp", f"{classes}:{JARS}/*", "JavaClient", cluster.bootstrap]
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_client(outcomes: Outcomes, scenario: str) -> None:
    outcomes.check(scenario)
