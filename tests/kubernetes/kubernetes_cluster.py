"""A Kubernetes of one node in a test's hands, and a release of the chart in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "barnabas"
EXAMPLES: Final = CHART / "examples"
VALUES: Final = Path(__file__).resolve().parent / "values.yaml"
CLUSTER: Final = ROOT / "deploy" / "kubernetes" / "cluster.sh"
HELM: Final = ROOT / "build" / "chart-checks" / "bin" / "helm"
LOGS: Final = ROOT / "build" / "kubernetes-logs"
"""Where the logs of all pods are after a run."""

SERVICES: Final = ("gateway", "storage", "controller", "coordinator", "canary", "barnabas")
WAIT_SECONDS: Final = 180.0
NODE_PORT: Final = 30_092
"""Of the first storage node, as values.yaml has it."""


class Kubernetes:
    """Owns the cluster: empty at first, and gone with all that it stored after `stop`."""

    def __init__(self) -> None:
        lines = run(CLUSTER, "start").splitlines()
        (words,) = [line.removeprefix("export ").split() for line in lines if line.startswith("export ")]
        variables = dict(word.split("=", 1) for word in words)
        self.environment = {
            **os.environ,
            "KUBECONFIG": variables["KUBECONFIG"],
            "PATH": variables["PATH"].replace("$PATH", os.environ["PATH"]),
        }

    def load(self, version: str, *others: str) -> None:
        """Give it our images of a version, and others by name."""
        run(CLUSTER, "load", *(f"barnabas/{service}:{version}" for service in SERVICES), *others)

    def stop(self) -> None:
        self.save_logs()
        run(CLUSTER, "stop")

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl writes to stdout. Raises AssertionError when it fails."""
        return run("kubectl", *arguments, environment=self.environment, stdin=stdin)

    def helm(self, *arguments: str) -> str:
        return run(HELM, *arguments, environment=self.environment)

    def objects(self, kind: str, namespace: str, *arguments: str) -> list[dict[str, Any]]:
        text = self.kubectl("--namespace", namespace, "get", kind, "--output", "json", *arguments)
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found

    def make_namespace(self, name: str) -> None:
        """One that refuses every pod that is not of the restricted Pod Security Standard."""
        self.kubectl("create", "namespace", name)
        self.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")

    def save_logs(self) -> None:
        """Keep what pods wrote, those of the container before too: the node forgets it."""
        shutil.rmtree(LOGS, ignore_errors=True)
        for file in Path(self.environment["KUBECONFIG"]).parent.glob("pod-logs/*/*/*.log"):
            target = LOGS / file.parts[-3] / f"{file.parts[-2]}-{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())


class Release:
    """Owns one release of the chart, in a namespace of its own; `remove` leaves the volumes, as Helm does."""

    def __init__(self, kubernetes: Kubernetes, name: str, *values: Path) -> None:
        self.name = self.namespace = name
        self._kubernetes = kubernetes
        self._values = [argument for file in values for argument in ("--values", str(file))]
        kubernetes.make_namespace(name)

    def install(self, *settings: str) -> None:
        """Install or upgrade, and wait until every pod is ready. `settings` are name=value."""
        chosen = [argument for setting in settings for argument in ("--set", setting)]
        self._helm(
            "upgrade",
            "--install",
            self.name,
            str(CHART),
            *self._values,
            *chosen,
            "--wait",
            "--timeout",
            "180s",
        )

    def test(self) -> str:
        """What `helm test` says."""
        return self._helm("test", self.name, "--logs")

    def remove(self) -> None:
        self._helm("uninstall", self.name, "--wait")
        wait_for(
            lambda: not self.pods(),
            lambda: f"still there: {[pod['metadata']['name'] for pod in self.pods()]}",
        )

    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """Pods that belong to workloads, of one component or of all; the pod of `helm test` is not one."""
        selector = "app.kubernetes.io/component!=test"
        if component:
            selector = f"app.kubernetes.io/component={component}"
        return self._kubernetes.objects("pods", self.namespace, "--selector", selector)

    def restarts(self) -> dict[str, int]:
        """How often the containers of each pod began anew by themselves, where they did."""
        counts = {
            pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
            for pod in self.pods()
        }
        return {name: count for name, count in counts.items() if count}

    def delete_pod(self, component: str, *, at_once: bool = False) -> None:
        """Delete a pod of a component, or kill it; wait until as many as before are ready, and none is that one."""
        before = {pod["metadata"]["uid"] for pod in self.pods(component)}
        deleted = self.pods(component)[0]["metadata"]
        how = ["--grace-period=0", "--force"] if at_once else []
        self._kubernetes.kubectl("--namespace", self.namespace, "delete", "pod", deleted["name"], *how)

        def is_whole() -> bool:
            ready = {pod["metadata"]["uid"] for pod in self.pods(component) if is_ready(pod)}
            return deleted["uid"] not in ready and len(ready) == len(before)

        wait_for(
            is_whole, lambda: f"after {deleted['name']}: {[pod['status'] for pod in self.pods(component)]}"
        )

    def _helm(self, *arguments: str) -> str:
        return self._kubernetes.helm("--namespace", self.namespace, *arguments)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether Kubernetes sends it clients: ready, and not about to end."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def run(
    program: str | Path, *arguments: str, environment: dict[str, str] | None = None, stdin: str = ""
) -> str:
    """What a program writes to stdout. Raises AssertionError with what it wrote to stderr when it fails."""
    path = None if environment is None else environment["PATH"]
    found = shutil.which(str(program), path=path)
    assert found, f"{program} is missing"
    done = subprocess.run(
        [found, *arguments], input=stdin, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stderr[-3000:]}"
    return done.stdout


def wait_for(holds: Callable[[], bool], explain: Callable[[], str]) -> None:
    """Wait until `holds`. Raises AssertionError with what `explain` says."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.5)
