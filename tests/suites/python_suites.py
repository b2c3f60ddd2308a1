"""kafka-python's own integration tests, from its source distribution."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from fetched import python_packages, run, source_distribution
from real_kafka import kafka_version
from results import Outcome, Reason, Result
from suite import Suite, SuiteCluster

SERVICE: Final = '''
from kafka import KafkaConsumer

# A consumer forgets what it subscribed to while its first Metadata request was under way, until it asks again: as it
# comes, after five minutes. The tests wait for 30 s, one of them for 2 s only.
KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 500


class ExternalService:
    """A broker that is there already."""

    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    """Needs a Kafka distribution, which these runs do not have."""
'''
"""Stands in for a module that the distribution's tests import and the distribution leaves out; and keeps a race of the
client's own (seen in 3.0.12) from failing them.
"""

CODECS: Final = ("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0")
"""What kafka-python compresses with; without them, it skips tests."""

SECURITY: Final = "security (TLS, SASL, ACLs) is not served yet"


class KafkaPython(Suite):
    """`test/integration` of kafka-python, pointed at a broker by KAFKA_URI."""

    name = "kafka-python"
    version = "3.0.12"
    registry = "PyPI"
    what = "test/integration of the source distribution"
    seconds_max = 420.0
    settings = ("group.min.session.timeout.ms=100", "num.partitions=4")
    reasons = (
        Reason("acls|[Ss][Ss][Ll]|sasl|scram", SECURITY),
        Reason(
            "create_partitions$", "names broker 0 for a replica; brokers here begin with 1", Outcome.FAILED
        ),
        Reason(
            "delete_records$",
            "wants one poll to give what is at all three brokers, where it ends with the first one's answer: passes by"
            " chance",
            Outcome.FAILED,
        ),
    )

    def fetch(self, work: Path) -> Path:
        folder = source_distribution(self.name, self.version, work)
        (folder / "test" / "__init__.py").touch()  # else the standard library's `test` is meant
        (folder / "test" / "service.py").write_text(SERVICE)
        python_packages(CODECS, folder / "codecs")
        return folder

    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        report = folder / "report.xml"
        report.unlink(missing_ok=True)
        settings = {
            "KAFKA_URI": f"tcp://{cluster.bootstrap}",
            "KAFKA_VERSION": kafka_version(),
            "KAFKA_ROOT": str(folder),
            "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'codecs'}",
        }
        command = [sys.executable, "-m", "pytest", "test/integration", "-q", "-p", "no:randomly"]
        command += ["-p", "no:cacheprovider", "--timeout=90", f"--junitxml={report}", "-o", "addopts="]
        done = run(command, cwd=folder, seconds=self.seconds_max, env={**os.environ, **settings})
        if not report.is_file():
            raise RuntimeError(f"{self.name} wrote no report:\n{done.stdout[-2000:]}")
        return [_result(case) for case in ElementTree.parse(report).iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
    for kind in ("failure", "error"):
        if (trouble := case.find(kind)) is not None:
            lines = (trouble.get("message") or "failed").splitlines()
            return Result(name, Outcome.FAILED, (lines or [""])[0])
    if (skipped := case.find("skipped")) is not None:
        return Result(name, Outcome.NOT_APPLICABLE, f"skips itself: {skipped.get('message')}")
    return Result(name, Outcome.PASSED)
