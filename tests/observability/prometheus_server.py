"""A real Prometheus with the project's own configuration: other targets, and shorter intervals."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from running_cluster import free_ports, require_program

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "observability"
WAIT_SECONDS: Final = 60.0

Targets = Mapping[str, Mapping[str, str]]
"""Job to instance to address."""


class PrometheusServer:
    """Asks one running Prometheus."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API. Raises AssertionError with its complaint."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that the query has now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def label_values(self, metric: str, label: str) -> list[str]:
        """What a dashboard's variable offers."""
        found: list[str] = self.ask(f"label/{label}/values", **{"match[]": metric})
        return found

    def wait_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                    return
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)


def configuration(name: str, targets: Targets, scrape_seconds: float) -> dict[str, Any]:
    """The project's configuration of that name with these targets; jobs without one are left out."""
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    document["global"] = {
        "scrape_interval": f"{scrape_seconds * 1000:.0f}ms",
        "evaluation_interval": f"{scrape_seconds * 3000:.0f}ms",
    }
    document["rule_files"] = [str(FOLDER / rules) for rules in document["rule_files"]]
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    assert set(targets) <= set(jobs), "a job that the project does not scrape"
    document["scrape_configs"] = [
        # In the compose project the instance is the host's name; here all are one host.
        jobs[job]
        | {
            "static_configs": [
                {"targets": [address], "labels": {"instance": instance}}
                for instance, address in instances.items()
            ]
        }
        for job, instances in targets.items()
    ]
    return document


@contextlib.contextmanager
def prometheus_server(
    folder: Path, targets: Targets, *, name: str = "prometheus.yaml", scrape_seconds: float = 1.0
) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes `targets` while the context is open."""
    program = require_program("prometheus")
    file, log = folder / "prometheus.yaml", folder / "prometheus.log"
    file.write_text(yaml.safe_dump(configuration(name, targets, scrape_seconds)))
    address = f"127.0.0.1:{free_ports(1)}"
    command = [program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command += [f"--web.listen-address={address}", "--log.level=warn"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    server = PrometheusServer(address)
    try:
        server.wait_ready(process, log)
        yield server
    finally:
        process.kill()
        process.wait()
