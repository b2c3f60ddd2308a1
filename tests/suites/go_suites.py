"""The tests of Go clients, from their module archives."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fetched import go_module, go_test_program, run
from real_kafka import kafka_version
from results import Outcome, Reason, Result
from suite import Suite, SuiteCluster

END: Final = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+)", re.MULTILINE)
SHARE: Final = "share groups are not served yet"
SECURITY: Final = "security (SASL, ACLs, SCRAM) is not served yet"
OUTCOMES: Final = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.NOT_APPLICABLE}


def read_go_output(output: str) -> list[Result]:
    """Results of the tests at the top, from what `go test -v` prints."""
    return [
        Result(name, OUTCOMES[word], "" if word == "PASS" else _message(output, name))
        for word, name in END.findall(output)
    ]


def _message(output: str, name: str) -> str:
    """The last line that a test logged before it ended."""
    before = output[: output.index(f": {name}")]
    lines = [line.strip() for line in before.splitlines() if re.match(r"^\s+\w+\.go:\d+: ", line)]
    return lines[-1][:200] if lines else "says nothing"


class FranzGo(Suite):
    """`pkg/kgo` of franz-go: produce, consume and regroup with every balancer, while members come and go."""

    name = "franz-go"
    version = "v1.22.2"
    registry = "the Go module proxy"
    what = "package kgo (its ETL tests with 20,000 records)"
    seconds_max = 900.0
    remark = "Its tests are told to ask for three replicas."
    reasons = (
        Reason("Share", SHARE),
        Reason("SCRAM", SECURITY),
        Reason(
            "TestIssueProduceBrokerTooOldFailsRecords", "is about brokers that refuse Produce 2; skips itself"
        ),
    )

    def fetch(self, work: Path) -> Path:
        folder = go_module("github.com/twmb/franz-go", self.version, work) / "pkg" / "kgo"
        go_test_program(folder, ".", folder / "suite.test")
        return folder

    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        settings = {
            "KGO_SEEDS": cluster.bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": "20000",
            "KGO_TEST_MAX_TOPIC_PARTS": "7",
            "KGO_LOG_LEVEL": "none",
        }
        command = [str(folder / "suite.test"), "-test.v", f"-test.timeout={self.seconds_max:.0f}s"]
        done = run(command, cwd=folder, seconds=self.seconds_max + 30, env={**os.environ, **settings})
        results = read_go_output(done.stdout)
        if not results:
            raise RuntimeError(f"{self.name} ran no test:\n{done.stdout[-2000:]}")
        return results


class KafkaGo(Suite):
    """kafka-go's tests, which expect a broker at localhost:9092; one at a time, as a panic ends the others."""

    name = "kafka-go"
    version = "v0.4.51"
    registry = "the Go module proxy"
    what = "package kafka"
    seconds_max = 900.0
    host = "localhost"
    first_port = 9092
    settings = ("message.max.bytes=200000000",)
    reasons = (
        Reason(
            "^TestClient(Add(Offsets|Partitions)ToTxn|InitProducerId|TxnOffsetCommit)$",
            "skips itself from Kafka 3.0 on",
        ),
        Reason("ACL|Scram|SASL|Sasl", SECURITY),
        Reason("^TestReadTruncatedMessages$", "skips itself: it is about Kafka 0.10.1"),
        Reason(
            "^TestConsumerGroupWithMissingTopic$", "skips itself where topics are created by their mention"
        ),
        Reason(
            "^TestConn$",
            "cases want a single broker, and in its list every group that they made through it, where it lists those"
            " that it coordinates; another asks for the topics that it has just deleted and wants them gone, although"
            " auto-creation is on: here the answer has them again already (see compatibility.md, Metadata)",
            Outcome.FAILED,
        ),
        Reason(
            "^TestWriter$", "one of its cases wants a listener with SASL beside the plain one", Outcome.FAILED
        ),
        Reason(
            "^TestDialer(TLS|Resolver)?$",
            "wants the one replica of a new topic to be on broker 1, where any of three gets it: passes by chance",
            Outcome.FAILED,
        ),
        Reason(
            "^TestErrorCannotConnect(GroupSubscription)?$",
            "wants nobody to listen at port 9093, where the second of three brokers is",
            Outcome.FAILED,
        ),
        Reason(
            "^TestReaderReadCompactedMessage$",
            "wants segment.bytes=200; since Kafka 4, 1 MiB is the least (KIP-1030)",
            Outcome.FAILED,
        ),
        Reason(
            "^TestReaderConsumerGroup$",
            "one case wants each of two readers of three partitions to get half of the records; another calls a"
            " function that it left nil, and panics",
            Outcome.FAILED,
        ),
    )

    def fetch(self, work: Path) -> Path:
        folder = go_module("github.com/segmentio/kafka-go", self.version, work)
        go_test_program(folder, ".", folder / "suite.test")
        return folder

    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        program = str(folder / "suite.test")
        env = {**os.environ, "KAFKA_VERSION": kafka_version(), "KAFKA_SKIP_NETTEST": "1"}
        listed = run([program, "-test.list", "^Test"], cwd=folder, seconds=60).stdout.split()
        results = []
        left = self.seconds_max
        for name in listed:
            result, seconds = _one_test(program, name, folder, min(60.0, left), env)
            results.append(result)
            left = max(left - seconds, 1.0)
        return results


def _one_test(
    program: str, name: str, folder: Path, seconds_max: float, env: Mapping[str, str]
) -> tuple[Result, float]:
    """The result of one test, and how many seconds it may be said to have taken."""
    command = [program, "-test.v", f"-test.run=^{name}$", f"-test.timeout={seconds_max:.0f}s"]
    done = run(command, cwd=folder, seconds=seconds_max + 10, env=env)
    took = re.search(rf"^--- \w+: {name} \(([\d.]+)s\)", done.stdout, re.MULTILINE)
    found = [result for result in read_go_output(done.stdout) if result.name == name]
    if found:
        return found[0], float(took[1]) if took else 0.0
    panics = re.findall(r"^panic: (.*)", done.stdout, re.MULTILINE)
    return Result(name, Outcome.FAILED, (panics or ["did not end"])[0][:200]), seconds_max / 4
