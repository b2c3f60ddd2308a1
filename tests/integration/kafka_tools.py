"""Apache Kafka's own tools as a user runs them: one JVM a call, from the jars that `make jars` fetched."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JARS: Final = Path(__file__).resolve().parents[2] / "build" / "jars" / "kafka-tools"

START_QUICKLY: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
"""The tools live for a second: a JVM that optimizes less starts sooner."""

SECONDS_MAX: Final = 90.0
"""Far above what a tool takes on a busy machine; a tool that hangs fails its test."""

TOOLS: Final = {
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""The names of Kafka's shell scripts (`kafka-topics.sh` is "topics") and the classes that they start."""


@dataclass(frozen=True)
class Output:
    """What a tool wrote."""

    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout that are not empty."""
        return [line for line in self.stdout.splitlines() if line.strip()]


def command_of(tool: str, *arguments: str) -> list[str]:
    """The command line of one tool; fails without the jars, because a test that is not run proves nothing."""
    assert any(JARS.glob("kafka-tools-*.jar")), f"{JARS} is empty: `make jars` fetches Kafka's tools"
    return ["java", *START_QUICKLY, "-cp", f"{JARS}/*", TOOLS[tool], *arguments]


def run_tool(tool: str, *arguments: str, stdin: str = "", status: int = 0) -> Output:
    """Run one tool to its end; it must exit with `status`."""
    done = subprocess.run(
        command_of(tool, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == status, (
        f"{tool} {' '.join(arguments)[:500]} exited with {done.returncode}, not {status}:\n"
        f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    return Output(done.stdout, done.stderr)
