"""Three nodes seen by kcat of Debian (librdkafka 2.0), which tells brokers apart by host and port."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from running_cluster import require_program

pytestmark = pytest.mark.integration


def kcat(cluster: Any, *arguments: str, stdin: str = "") -> str:
    """What kcat prints; it must succeed."""
    command = [require_program("kcat"), "-b", cluster.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("advertise", ["port", "one"])
def test_three_nodes_look_right_to_a_client_that_goes_by_address(make_cluster: Any, advertise: str) -> None:
    cluster = make_cluster(nodes=3, advertise=advertise)
    topic = "kcat-three-nodes"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(30)
    lines = [f"key-{number}:value-{number}" for number in range(300)]
    produce = ("-P", "-t", topic, "-K:", "-z", "zstd", "-X", "enable.idempotence=true")
    kcat(cluster, *produce, stdin="\n".join(lines))
    read = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K:")
    assert sorted(read.splitlines()) == sorted(lines)
    member = ("-X", "auto.offset.reset=earliest", "-c", "300", "-q")
    assert len(kcat(cluster, "-G", "kcat-three-nodes", *member, topic).splitlines()) == 300
    listing = json.loads(kcat(cluster, "-L", "-J"))
    partitions = {row["topic"]: row["partitions"] for row in listing["topics"]}[topic]
    leaders = {partition["leader"] for partition in partitions}
    assert leaders == ({1, 2, 3} if advertise == "port" else {1})
