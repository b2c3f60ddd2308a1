"""Apache Kafka's own tools as a user runs them, from the jars that `make jars` fetched.

`run_tool` starts one JVM a call, as the shell scripts do. `ToolsInOneJvm` calls the tools' `main` one after the other
in one JVM, for tests that look at many flags: a call takes milliseconds then.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

JARS: Final = Path(__file__).resolve().parents[2] / "build" / "jars" / "kafka-tools"

RUNNER: Final = Path(__file__).parent / "clients" / "java" / "ToolRunner.java"

START_QUICKLY: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
"""The tools live for a second: a JVM that optimizes less starts sooner."""

SECONDS_MAX: Final = 90.0
"""Far above what a tool takes on a busy machine; a tool that hangs fails its test."""

TOOLS: Final = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
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


def java(*arguments: str) -> list[str]:
    """A JVM with the jars; fails without them, because a test that is not run proves nothing."""
    assert any(JARS.glob("kafka-tools-*.jar")), f"{JARS} is empty: `make jars` fetches Kafka's tools"
    return ["java", *START_QUICKLY, "-cp", f"{JARS}/*", *arguments]


def command_of(tool: str, *arguments: str) -> list[str]:
    """The command line of one tool."""
    return java(TOOLS[tool], *arguments)


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


class ToolsInOneJvm:
    """Owns one JVM (clients/java/ToolRunner.java) that runs tools one after the other against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            java(str(RUNNER)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                self._lines.put(line.removeprefix("answer "))
        self._lines.put("")

    def __call__(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> Output:
        """Run one tool against the cluster; it must exit with `status`."""
        # This one has a command first, and the address among its flags.
        first = arguments[:1] if tool == "cluster" else ()
        address = () if tool == "dump-log" else ("--bootstrap-server", self.bootstrap)
        everything = [*first, *address, *arguments[len(first) :]]
        assert self._process.stdin is not None
        command = {"class": TOOLS[tool], "arguments": everything, "stdin": stdin}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._lines.get(timeout=SECONDS_MAX)
        assert line, f"the JVM ended at {tool} {' '.join(arguments)[:500]}"
        answer = json.loads(line)
        assert answer["status"] == status, (
            f"{tool} {' '.join(arguments)[:500]} exited with {answer['status']}, not {status}:\n"
            f"{answer['stdout'][-3000:]}\n{answer['stderr'][-3000:]}"
        )
        return Output(answer["stdout"], answer["stderr"])
