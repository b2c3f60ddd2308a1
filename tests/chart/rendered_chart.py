"""The chart as Helm renders it, as plain data."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "barnabas"
CHECKS: Final = ROOT / "build" / "chart-checks"

RELEASE: Final = "barnabas"
NAMESPACE: Final = "streaming"
DOMAIN: Final = f"{NAMESPACE}.svc.cluster.local"

Object = Mapping[str, Any]
"""A Kubernetes object."""


def program(name: str) -> str:
    """The path of a program that deploy/chart-checks/install.sh builds."""
    path = CHECKS / "bin" / name
    assert path.is_file(), f"{name} is missing: run deploy/chart-checks/install.sh"
    return str(path)


def run(command: Sequence[str], *, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it printed comes back whatever its status."""
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=120, env=_environment()
    )


def _environment() -> dict[str, str]:
    """Without what a user may have set for Helm or kubectl."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HELM_", "KUBE", "BARNABAS_"))
    }
    folder = str(CHECKS / "helm-home")
    return {**kept, "HELM_CACHE_HOME": folder, "HELM_CONFIG_HOME": folder, "HELM_DATA_HOME": folder}


def flags(values: Sequence[str]) -> list[str]:
    """Helm's flags for values: the name of an example (`minimal`), or `path=value`."""
    made = []
    for value in values:
        if "=" in value:
            made += ["--set", value]
        else:
            made += ["--values", str(CHART / "examples" / f"{value}.yaml")]
    return made


def template(*values: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart with values; see `flags`."""
    command = [program("helm"), "template", RELEASE, str(CHART), "--namespace", NAMESPACE]
    return run([*command, *flags(values)])


@functools.cache
def rendered_text(*values: str) -> str:
    """The manifests of the chart with values, which must be good ones."""
    done = template(*values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def render(*values: str) -> Rendered:
    """The objects of the chart with values, which must be good ones."""
    documents = yaml.load_all(
        rendered_text(*values), yaml.CSafeLoader
    )  # several times as fast as safe_load_all
    return Rendered(tuple(document for document in documents if document))


@dataclass(frozen=True)
class Rendered:
    """All objects of one rendering."""

    objects: tuple[Object, ...]

    def of_kind(self, *kinds: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] in kinds]

    def one(self, kind: str, name: str) -> Object:
        """The object of a kind whose name is `barnabas-NAME`."""
        full = f"{RELEASE}-{name}" if name else RELEASE
        (found,) = (item for item in self.of_kind(kind) if item["metadata"]["name"] == full)
        return found

    @property
    def workloads(self) -> list[Object]:
        """What makes pods, and pods."""
        return self.of_kind("Deployment", "StatefulSet", "Pod")

    def workload(self, component: str) -> Object:
        """The one workload of a component."""
        (found,) = (item for item in self.workloads if component_of(item) == component)
        return found

    @property
    def front(self) -> str:
        """The component that clients connect to: the gateways, or the storage nodes where those are brokers."""
        return "gateway" if "gateway" in map(component_of, self.workloads) else "storage"

    def selected(self, selector: Mapping[str, str]) -> list[Object]:
        """The workloads whose pods have these labels."""
        return [item for item in self.workloads if selector.items() <= pod_labels(item).items()]

    def properties(self, component: str) -> str:
        """The text of a component's properties file."""
        name = f"{component}.properties"
        (text,) = (item["data"][name] for item in self.of_kind("ConfigMap") if name in item["data"])
        return str(text)

    def settings(self, component: str) -> dict[str, str]:
        """What a component's properties file says."""
        lines = [line for line in self.properties(component).splitlines() if not line.startswith("#")]
        return dict(line.split("=", 1) for line in lines)


def component_of(item: Object) -> str:
    return str(item["metadata"]["labels"]["app.kubernetes.io/component"])


def pod_spec(workload: Object) -> Any:
    """The spec of a workload's pods."""
    return workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]


def pod_labels(workload: Object) -> dict[str, str]:
    """The labels of a workload's pods, as far as the chart knows them."""
    holder = workload if workload["kind"] == "Pod" else workload["spec"]["template"]
    return dict(holder["metadata"]["labels"])


def container_of(workload: Object) -> Any:
    """A pod's container; ours have one."""
    (container,) = pod_spec(workload)["containers"]
    return container


def container_ports(workload: Object) -> dict[str, int]:
    """Ports by name."""
    return {port["name"]: port["containerPort"] for port in container_of(workload).get("ports", ())}


def environment_of(workload: Object, fields: Mapping[str, str]) -> dict[str, str]:
    """The variables of a pod, given the `fields` of the downward API, expanded."""
    variables: dict[str, str] = {}
    for entry in container_of(workload).get("env", ()):
        if "value" in entry:
            text = expanded(str(entry["value"]), variables)
        else:
            text = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        variables[entry["name"]] = text
    return variables


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """A variable's value, a command or an argument as Kubernetes hands it on: $(NAME) put in, and $$ made $."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([\w.-]+)\)", value, text)


def texts(node: Any) -> Iterator[str]:
    """Every string anywhere in an object."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
