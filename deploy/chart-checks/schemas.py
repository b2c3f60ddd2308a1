"""Lay out JSON schemas of Kubernetes' kinds as kubeconform looks for them.

    schemas.py FOLDER VERSION...      such as: schemas.py build/chart-checks/schemas 1.36 1.37

Kubernetes' own schemas come from the Python package `kubernetes-validate`, which carries those of every release; the
Prometheus operator's from the custom resource definitions in its Go module. In all of them an object may have no
property that the schema does not name (kubeconform's `-strict`), and every reference is inside its file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
CUSTOM_RESOURCES: Final = ("servicemonitors", "prometheusrules")

KINDS: Final = (
    "configmap-v1",
    "deployment-apps-v1",
    "horizontalpodautoscaler-autoscaling-v2",
    "networkpolicy-networking-v1",
    "pod-v1",
    "poddisruptionbudget-policy-v1",
    "secret-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
)
"""The kinds that a chart of ours may have; kubeconform fails for any other."""

ANY_OBJECT: Final = frozenset({"x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"})


def main(folder: Path, versions: list[str]) -> None:
    """Write the schemas of `versions` (1.37) and of the operator's kinds below `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheel = _download_schemas(folder)
    with zipfile.ZipFile(wheel) as package:
        for version in versions:
            _write_kubernetes(package, version, folder / f"v{version}.0-standalone-strict")
    shutil.rmtree(wheel.parent)
    _write_custom_resources(_download_operator(folder), folder / "custom")


def _download_schemas(folder: Path) -> Path:
    """The wheel with Kubernetes' schemas, held to the hash in requirements.txt."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    target = folder / "package"
    subprocess.run([*pip, "-d", str(target), "-r", str(HERE / "requirements.txt")], check=True)
    (wheel,) = target.glob("*.whl")
    return wheel


def _download_operator(folder: Path) -> Path:
    """The folder of the operator's Go module."""
    command = ["go", "mod", "download", "-json", OPERATOR]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


def _write_kubernetes(package: zipfile.ZipFile, version: str, folder: Path) -> None:
    source = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
    definitions = json.loads(package.read(f"{source}/_definitions.json"))["$defs"]
    folder.mkdir()
    for kind in KINDS:
        schema = json.loads(package.read(f"{source}/{kind}.json"))
        del schema["$id"]  # the place where its references were
        needed: dict[str, Any] = {}
        _gather(schema, definitions, needed)
        (folder / f"{kind}.json").write_text(json.dumps(_strict({**schema, "$defs": needed})))


def _gather(node: Any, definitions: dict[str, Any], needed: dict[str, Any]) -> None:
    """Point the references below `node` into its own file, and take along what they lead to."""
    if isinstance(node, list):
        for item in node:
            _gather(item, definitions, needed)
    if not isinstance(node, dict):
        return
    if isinstance(reference := node.get("$ref"), str):
        name = reference.rpartition("/")[2]
        node["$ref"] = f"#/$defs/{name}"
        if name not in needed:
            needed[name] = definitions[name]
            _gather(needed[name], definitions, needed)
    for item in node.values():
        _gather(item, definitions, needed)


def _write_custom_resources(module: Path, folder: Path) -> None:
    folder.mkdir()
    for plural in CUSTOM_RESOURCES:
        path = module / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{plural}.yaml"
        definition = yaml.safe_load(path.read_text())
        (version,) = definition["spec"]["versions"]
        schema = _strict(version["schema"]["openAPIV3Schema"])
        kind = definition["spec"]["names"]["kind"].lower()
        (folder / f"{kind}-monitoring-{version['name']}.json").write_text(json.dumps(schema))


def _strict(schema: Any) -> Any:
    """`schema` without room for properties that it does not name: an API server would drop them without a word."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(value) for name, value in schema.items()}
    if "properties" in strict and not any(strict.get(name) is True for name in ANY_OBJECT):
        strict.setdefault("additionalProperties", False)
    return strict


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: schemas.py FOLDER VERSION...")
    main(Path(sys.argv[1]), sys.argv[2:])
