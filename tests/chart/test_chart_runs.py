"""The pods of a rendered chart, run as processes: each with an address of its own on the loopback network.

What a pod is told by the chart is what its process is told, but for three things: names that Kubernetes would look up
are addresses here, 0.0.0.0 is the pod's own address, and volumes are folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from rendered_chart import (
    DOMAIN,
    Object,
    Rendered,
    component_of,
    container_of,
    container_ports,
    environment_of,
    expanded,
    pod_spec,
    render,
)

pytestmark = pytest.mark.integration

READY_SECONDS: Final = 30.0
ORDER: Final = ("etcd", "controller", "storage", "coordinator", "gateway", "canary")


@dataclass
class Pod:
    """One process that stands for a pod."""

    workload: Object
    ordinal: int
    address: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"{self.workload['metadata']['name']}-{self.ordinal}"

    @property
    def fields(self) -> dict[str, str]:
        """What the downward API says."""
        return {
            "metadata.name": self.name,
            "status.podIP": self.address,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(self.ordinal),
            "metadata.labels['topology.kubernetes.io/zone']": f"zone-{self.ordinal}",
        }

    def is_ready(self) -> bool:
        """Whether the readiness probe of the chart succeeds."""
        container = container_of(self.workload)
        probe = container["readinessProbe"]["httpGet"]
        port = container_ports(self.workload)[probe["port"]]
        # Debian's etcd is older than the image's, and has one path for all probes.
        path = "/health" if component_of(self.workload) == "etcd" else probe["path"]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{port}{path}", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@dataclass
class RunningChart:
    """Owner of the processes of one rendered chart, and of the folder that they have their files in."""

    rendered: Rendered
    folder: Path
    network: str
    pods: list[Pod] = field(default_factory=list)

    def start(self) -> None:
        """Start a process for each pod and wait until all are ready."""
        workloads = {component_of(item): item for item in self.rendered.workloads}
        for component in (each for each in ORDER if each in workloads):
            for ordinal in range(workloads[component]["spec"]["replicas"]):
                self.pods.append(Pod(workloads[component], ordinal, f"{self.network}.{len(self.pods) + 1}"))
        for pod in self.pods:
            pod.process = self._run(pod)
        end = time.monotonic() + READY_SECONDS
        for pod in self.pods:
            while not pod.is_ready():
                assert time.monotonic() < end, f"{pod.name} is not ready:\n{self._log(pod)}"
                assert pod.process is not None
                assert pod.process.poll() is None, f"{pod.name} ended:\n{self._log(pod)}"
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop as Kubernetes does; every process of ours must end in time and in peace."""
        running = [(pod, pod.process) for pod in reversed(self.pods) if pod.process is not None]
        for pod, process in running:
            if component_of(pod.workload) != "etcd":
                process.terminate()
        try:
            for pod, process in running:
                if component_of(pod.workload) != "etcd":
                    status = process.wait(pod_spec(pod.workload)["terminationGracePeriodSeconds"])
                    assert status == 0, f"{pod.name} ended with {status}:\n{self._log(pod)}"
        finally:
            for _, process in running:
                process.kill()
                process.wait()

    def address_of(self, component: str) -> str:
        """The address of a component's first pod."""
        return self.pods_of(self.rendered.front if component == "gateway" else component)[0].address

    def pods_of(self, component: str) -> list[Pod]:
        return [pod for pod in self.pods if component_of(pod.workload) == component]

    def _run(self, pod: Pod) -> subprocess.Popen[bytes]:
        home = self.folder / pod.name
        home.mkdir()
        told = environment_of(pod.workload, pod.fields)
        environment = {name: self._localised(pod, text) for name, text in told.items()}
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                self._command(pod),
                env={"PATH": os.environ["PATH"], **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _command(self, pod: Pod) -> list[str]:
        component = component_of(pod.workload)
        if component == "etcd":
            return list(container_of(pod.workload)["command"])
        file = self.folder / pod.name / f"{component}.properties"
        file.write_text(self._localised(pod, self.rendered.properties(component)))
        package = "host" if component == self.rendered.front == "storage" else component
        return [sys.executable, "-m", f"barnabas.{package}", "--config", str(file)]

    def _localised(self, pod: Pod, text: str) -> str:
        """A setting with addresses for names, the pod's address for all of its addresses, and a folder for volumes."""
        by_name = {each.name: each.address for each in self.pods}

        def address(match: re.Match[str]) -> str:
            name, service = match[1], match[2]
            component = service.removeprefix("barnabas-").removesuffix("-pods")
            return by_name[name.removesuffix(".")] if name else self.address_of(component)

        text = re.sub(rf"((?:[\w-]+\.)?)([\w-]+)\.{re.escape(DOMAIN)}", address, text)
        text = text.replace("0.0.0.0", pod.address)
        return re.sub("/var/lib/(barnabas|etcd)", str(self.folder / pod.name), text)

    def _log(self, pod: Pod) -> str:
        return (self.folder / pod.name / "log").read_text()[-3000:]


@pytest.fixture(scope="module", params=[(), ("brokers",)], ids=["separate", "brokers"])
def chart(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningChart]:
    """The chart in either layout, with etcd and two of most, and the canary."""
    rendered = render(*request.param, "storage.replicas=2", "canary.enabled=true")
    # A network of its own for each test process, out of the 16 million addresses of the loopback network.
    network = f"127.{100 + os.getpid() // 250 % 100}.{1 + os.getpid() % 250}"
    running = RunningChart(rendered, tmp_path_factory.mktemp("chart"), network)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_a_rendered_chart_is_a_cluster_with_a_port_for_each_storage_node(chart: RunningChart) -> None:
    gateway = chart.address_of("gateway")
    expected = {0: (gateway, 9092), 1: (gateway, 9093)}
    if chart.rendered.front == "storage":  # where each has an address of its own
        expected = {pod.ordinal: (pod.address, 9092 + pod.ordinal) for pod in chart.pods_of("storage")}
    deadline = time.monotonic() + READY_SECONDS
    while (told := brokers_told(f"{gateway}:9092")) != expected:  # until every gateway is known to this one
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def brokers_told(bootstrap: str) -> dict[int, tuple[str, int]]:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
    return {broker.id: (str(broker.host), broker.port) for broker in metadata.brokers.values()}


def test_the_canary_goes_round_the_gateways(chart: RunningChart) -> None:
    with urllib.request.urlopen(f"http://{chart.address_of('canary')}:8080/metrics", timeout=5) as answer:
        assert b"barnabas_canary_" in answer.read()


def run_helm_test(bootstrap: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run what the pod of `helm test` runs, with the `barnabas` of this environment."""
    container = container_of(render().workload("test"))
    assert [entry["name"] for entry in container["env"]] == ["BARNABAS_BOOTSTRAP_SERVER", "HOME"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BARNABAS_BOOTSTRAP_SERVER": bootstrap,
        "HOME": str(home),
    }
    command = [expanded(text, environment) for text in (*container["command"], *container["args"])]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )


def test_helm_test_passes_and_leaves_no_topic(chart: RunningChart, tmp_path: Path) -> None:
    bootstrap = f"{chart.address_of('gateway')}:9093"
    done = run_helm_test(bootstrap, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"read what was sent, through {bootstrap}" in done.stdout
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    assert [name for name in topics if name.startswith("helm-test")] == []


def test_helm_test_fails_where_no_gateway_is(tmp_path: Path) -> None:
    done = run_helm_test("127.0.0.1:1", tmp_path)
    assert done.returncode != 0
    assert "127.0.0.1:1" in done.stderr


def test_logs_are_on_the_volumes(chart: RunningChart) -> None:
    assert len(list(chart.folder.glob("barnabas-storage-*/disk-0/log/meta.properties"))) == 2
    assert len(list(chart.folder.glob("barnabas-etcd-*/data/member"))) == 3
