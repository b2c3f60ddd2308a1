"""kafka-replica-verification reads each replica at its own broker, and says how far the last one is behind."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kafka_tools import ToolsInOneJvm, command_of
from test_throttled_replication import fill, plan, wait_until_there

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 30
RECORD_BYTES: Final = 100_000
LINES_MAX: Final = 60
"""Half a second each; the first ones come before the tool has read anything."""
_REPORT = re.compile(r"max lag is (\d+) for partition verified-0 at offset (\d+)")


@contextmanager
def reports(bootstrap: str) -> Iterator[Iterator[tuple[int, int]]]:
    """(greatest lag, offset) as the tool, which never ends by itself, says them from the topic's first offset on."""
    flags = ("--topics-include", "verified", "--time", "-2", "--report-interval-ms", "500")
    command = command_of("replica-verification", "--broker-list", bootstrap, *flags)
    tool = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert tool.stdout is not None
        found = (_REPORT.search(line) for line in itertools.islice(tool.stdout, LINES_MAX))
        yield ((int(match[1]), int(match[2])) for match in found if match)
    finally:
        tool.kill()
        tool.communicate(timeout=WAIT_SECONDS)


def test_a_replica_that_lags_is_seen(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    cluster = make_cluster(nodes=2)
    fill(cluster, "verified", node=1, size=20 * RECORD_BYTES)
    flags = ("--execute", "--reassignment-json-file", plan(tmp_path, "verified", [1, 2]))
    with ToolsInOneJvm(cluster.bootstrap) as tools:
        tools("reassign-partitions", *flags, "--throttle", "1000")
        with reports(cluster.bootstrap) as seen:
            assert any(lag for lag, _ in seen), "no report says that the new replica lacks records"
        tools("reassign-partitions", *flags, "--additional", "--throttle", str(1000 * RECORD_BYTES))
    wait_until_there(cluster, "verified", [1, 2])
    with reports(cluster.bootstrap) as seen:
        assert (0, 20) in seen, "no report says that all replicas have all records"
