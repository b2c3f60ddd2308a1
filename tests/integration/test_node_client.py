"""kafkajs, a client in JavaScript that tells brokers apart by host and port: produce, consume, groups, administration.

The scenarios are in clients/kafkajs; all of them pass against Apache Kafka 4.3.1 too.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Final

import pytest
from client_scenarios import CLIENTS, Outcomes, run_scenarios
from confluent_kafka import Consumer
from running_cluster import require_program

pytestmark = pytest.mark.integration

SOURCE: Final = CLIENTS / "kafkajs"
SCENARIOS: Final = re.findall(r"^  async (\w+)\(\) \{", (SOURCE / "scenarios.js").read_text(), re.MULTILINE)


def node(script: str, *arguments: str) -> list[str]:
    assert (SOURCE / "node_modules").is_dir(), f"{SOURCE} has no node_modules: `make test` installs them"
    return [require_program("node"), str(SOURCE / script), *arguments]


@pytest.fixture(scope="module")
def outcomes(cluster: Any) -> Outcomes:
    return run_scenarios(node("scenarios.js", cluster.bootstrap))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kafkajs(outcomes: Outcomes, scenario: str) -> None:
    outcomes.check(scenario)


def test_librdkafka_reads_what_kafkajs_compressed(outcomes: Outcomes, cluster: Any) -> None:
    outcomes.check("produce_every_compression")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "js-compression-read",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe(["js-compression"])
    messages = consumer.consume(500, timeout=30)
    consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    names = [(message.value() or b"").decode().split()[0] for message in messages]
    assert names == [name for name in ("None", "GZIP", "Snappy", "LZ4", "ZSTD") for _ in range(100)]


@pytest.mark.parametrize("advertise", ["port", "one"])
def test_three_nodes_look_right_to_a_client_that_goes_by_address(make_cluster: Any, advertise: str) -> None:
    cluster = make_cluster(nodes=3, advertise=advertise)
    base = int(cluster.bootstrap.rpartition(":")[2])
    command = node("round_trip.js", cluster.bootstrap, "kafkajs-three-nodes", "6", "1000")
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["equal"], "the records that came back are not those that were sent"
    assert result["total"] == 1000
    ports = [base, base + 1, base + 2] if advertise == "port" else [base]
    assert result["brokers"] == [f"127.0.0.1:{port}" for port in ports]
