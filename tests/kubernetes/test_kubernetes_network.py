"""The chart's NetworkPolicies where they are enforced: who reaches whom, asked by the pods themselves.

All the other tests of this folder run under the same policies; these say that there is no way besides.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from kubernetes_cluster import Kubernetes, Release, wait_for

GRPC, HTTP, CLIENTS, OUTSIDE, DIRECT, ETCD, PEERS = 19090, 8080, 9092, 10092, 11092, 2379, 2380

LISTENING: Final = {
    *((component, port) for component in ("storage", "controller", "coordinator") for port in (GRPC, HTTP)),
    *(("gateway", port) for port in (CLIENTS, CLIENTS + 2, OUTSIDE, DIRECT, HTTP)),
    ("canary", HTTP),
    ("etcd", ETCD),
    ("etcd", PEERS),
}
"""Components and ports that are looked at."""

METRICS: Final = {door for door in LISTENING if door[1] == HTTP}
CLIENTS_DOORS: Final = {("gateway", CLIENTS), ("gateway", CLIENTS + 2), ("gateway", OUTSIDE)}

REACHED: Final = {
    "gateway": {("storage", GRPC), ("controller", GRPC), ("coordinator", GRPC)},
    "storage": {("storage", GRPC), ("controller", GRPC)},
    "controller": {("controller", GRPC), ("etcd", ETCD)},
    "coordinator": {("storage", GRPC), ("controller", GRPC)},
    "canary": {("gateway", CLIENTS), ("gateway", CLIENTS + 2), ("gateway", DIRECT)},
}
"""What each component may reach; it is all that it needs."""

LOOK: Final = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def is_open(door):
    try:
        socket.create_connection(door, timeout=3).close()
    except OSError:
        return False
    return True

doors = [tuple(door) for door in json.loads(sys.argv[1])]
with ThreadPoolExecutor(len(doors)) as pool:
    print(json.dumps(list(pool.map(is_open, doors))))
"""

STRANGER: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "stranger"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "stranger",
                "command": ["python", "-c", "import signal; signal.pause()"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


class Looker:
    """Asks from within a pod which doors of a release are open."""

    def __init__(self, kubernetes: Kubernetes, release: Release) -> None:
        self._kubernetes, self._release = kubernetes, release

    def wait_reached(self, namespace: str, name: str, wanted: set[tuple[str, int]]) -> None:
        """Wait until a pod reaches just these, in every pod that has them: rules follow pods within a second."""
        seen: list[dict[tuple[str, int], list[bool]]] = []

        def holds() -> bool:
            seen.append(self._look_from(namespace, name))
            return all(set(answers) == {door in wanted} for door, answers in seen[-1].items())

        wait_for(holds, lambda: f"{name} is to reach {sorted(wanted)}, and finds (open or not) {seen[-1]}")

    def _look_from(self, namespace: str, name: str) -> dict[tuple[str, int], list[bool]]:
        """Of LISTENING, which can be connected to: an answer for every pod of the component but the one that asks."""
        doors = [
            (pod["status"]["podIP"], component, port)
            for component, port in sorted(LISTENING)
            for pod in self._release.pods(component)
            if pod["metadata"]["name"] != name
        ]
        asked = json.dumps([(address, port) for address, _, port in doors])
        answer = self._kubernetes.kubectl(
            "--namespace", namespace, "exec", name, "--", "python", "-c", LOOK, asked
        )
        found: dict[tuple[str, int], list[bool]] = {}
        for (_, component, port), is_open in zip(doors, json.loads(answer), strict=True):
            found.setdefault((component, port), []).append(is_open)
        return found


@pytest.fixture(scope="module")
def looker(kubernetes: Kubernetes, release: Release) -> Looker:
    return Looker(kubernetes, release)


def start_stranger(kubernetes: Kubernetes, release: Release, namespace: str, labels: dict[str, str]) -> None:
    """A pod that is not of the release, and waits to be told what to do."""
    (container,) = release.pods("gateway")[0]["spec"]["containers"]
    pod = json.loads(json.dumps(STRANGER))
    pod["metadata"]["labels"] = labels
    pod["spec"]["containers"][0]["image"] = container["image"]
    kubernetes.kubectl("--namespace", namespace, "apply", "--filename", "-", stdin=json.dumps(pod))
    kubernetes.kubectl(
        "--namespace", namespace, "wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s"
    )


@pytest.fixture(scope="module")
def strangers(kubernetes: Kubernetes, release: Release) -> str:
    """A namespace of somebody else, with one pod."""
    kubernetes.make_namespace("strangers")
    start_stranger(kubernetes, release, "strangers", {"team": "flights"})
    return "strangers"


@pytest.mark.parametrize("component", REACHED)
def test_a_component_reaches_what_it_needs_and_nothing_else(
    release: Release, looker: Looker, component: str
) -> None:
    pod = release.pods(component)[0]["metadata"]["name"]
    looker.wait_reached(release.namespace, pod, REACHED[component])


def test_a_stranger_reaches_what_clients_do_and_metrics(looker: Looker, strangers: str) -> None:
    looker.wait_reached(strangers, "stranger", CLIENTS_DOORS | METRICS)


def test_strangers_can_be_kept_away(
    kubernetes: Kubernetes, release: Release, looker: Looker, strangers: str
) -> None:
    chosen = "networkPolicy.clientsFrom[0].namespaceSelector.matchLabels.team=flights"
    scrapers = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=watchers"
    release.install(chosen, scrapers)
    try:
        looker.wait_reached(strangers, "stranger", set())
        kubernetes.kubectl("label", "namespace", strangers, "team=flights")
        looker.wait_reached(strangers, "stranger", CLIENTS_DOORS)
        kubernetes.kubectl("label", "--overwrite", "namespace", strangers, "team=watchers")
        looker.wait_reached(strangers, "stranger", METRICS)
        # The test of the release is a client too, and the canary.
        assert "read what was sent, through" in release.test()
        canary = release.pods("canary")[0]["metadata"]["name"]
        looker.wait_reached(release.namespace, canary, REACHED["canary"])
    finally:
        release.install()
