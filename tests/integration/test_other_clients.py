"""Clients in other languages, which tell brokers apart by host and port: kcat (librdkafka 2.0) and kafkajs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

KAFKAJS = Path(__file__).parent / "clients" / "kafkajs"


def run(*command: str, stdin: str = "", timeout: float = 90) -> str:
    """The standard output of a client, which must succeed."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def kcat_round_trip(cluster: Any, topic: str) -> None:
    lines = [f"key-{number}:value-{number}" for number in range(300)]
    run(
        "kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-K:", "-z", "zstd", "-X", "enable.idempotence=true",
        stdin="\n".join(lines),
    )  # fmt: skip
    out = run("kcat", "-b", cluster.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K:")
    assert sorted(out.splitlines()) == sorted(lines)
    grouped = run(
        "kcat", "-b", cluster.bootstrap, "-G", f"kcat-{topic}", "-X", "auto.offset.reset=earliest", "-c", "300", "-q",
        topic,
    )  # fmt: skip
    assert len(grouped.splitlines()) == 300


def kafkajs_round_trip(cluster: Any, topic: str, partitions: int) -> dict[str, Any]:
    script = str(KAFKAJS / "round_trip.js")
    out = run("node", script, cluster.bootstrap, topic, str(partitions), "1000")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert result["equal"], "the records that came back are not those that were sent"
    assert result["total"] == 1000
    return result


def test_kcat_on_one_node(cluster: Any) -> None:
    kcat_round_trip(cluster, "kcat-one-node")


def test_kafkajs_on_one_node(cluster: Any) -> None:
    kafkajs_round_trip(cluster, "kafkajs-one-node", 3)


@pytest.mark.parametrize("advertise", ["port", "one"])
def test_three_nodes_look_right_to_clients_that_go_by_address(make_cluster: Any, advertise: str) -> None:
    cluster = make_cluster(nodes=3, advertise=advertise)
    base = int(cluster.bootstrap.rpartition(":")[2])
    ports = [base, base + 1, base + 2] if advertise == "port" else [base]
    result = kafkajs_round_trip(cluster, "kafkajs-three-nodes", 6)
    assert result["brokers"] == [f"127.0.0.1:{port}" for port in ports]
    kcat_round_trip(cluster, "kafkajs-three-nodes-too")
    run("kcat", "-b", cluster.bootstrap, "-P", "-t", "kafkajs-three-nodes", stdin="\n".join(["x"] * 200))
    listing = json.loads(run("kcat", "-b", cluster.bootstrap, "-L", "-J"))
    leaders = {
        partition["leader"]
        for topic in listing["topics"]
        if topic["topic"] == "kafkajs-three-nodes"
        for partition in topic["partitions"]
    }
    assert leaders == ({1, 2, 3} if advertise == "port" else {1})
