"""Helm, Kubernetes' schemas and the restricted Pod Security Standard accept the chart with all values of the matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from chart_matrix import EXAMPLES, MATRIX, name_of
from rendered_chart import CHART, CHECKS, flags, program, rendered_text, run

KUBERNETES: Final = ("1.33.0", "1.34.0", "1.35.0", "1.36.0", "1.37.0")
"""The newest is last; the last three are maintained. install.sh gets their schemas."""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each case of the matrix."""
    folder = tmp_path_factory.mktemp("manifests")
    for values in MATRIX:
        (folder / f"{name_of(values)}.yaml").write_text(rendered_text(*values))
    assert len(list(folder.iterdir())) == len(MATRIX), "two cases have one name"
    return folder


@pytest.mark.parametrize("example", ["", *EXAMPLES])
def test_helm_finds_nothing_to_complain_of(example: str) -> None:
    done = run([program("helm"), "lint", "--strict", str(CHART), *flags([example] if example else [])])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_schemas_accept_every_object(manifests: Path, version: str) -> None:
    locations = [
        f"{CHECKS}/schemas/{{{{.NormalizedKubernetesVersion}}}}-standalone{{{{.StrictSuffix}}}}",
        f"{CHECKS}/schemas/custom",
    ]
    command = [program("kubeconform"), "-strict", "-summary", "-output", "json", "-n", "2"]
    for location in locations:
        command += ["-schema-location", f"{location}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"]
    assert (CHECKS / "schemas" / f"v{version}-standalone-strict").is_dir(), (
        "run deploy/chart-checks/install.sh"
    )
    done = run([*command, "-kubernetes-version", version, str(manifests)])
    result = json.loads(done.stdout)
    found = [
        f"{Path(item['filename']).stem}: {item['kind']} {item['name']}: {item['msg']}"
        for item in result["resources"]
    ]
    assert found == []
    assert done.returncode == 0, done.stderr
    assert result["summary"]["valid"] > 20 * len(MATRIX)
    assert result["summary"]["skipped"] == 0


def test_a_property_that_kubernetes_does_not_know_would_be_found(tmp_path: Path) -> None:
    wrong = rendered_text().replace("publishNotReadyAddresses:", "publishNotreadyAddresses:")
    (tmp_path / "wrong.yaml").write_text(wrong)
    location = (
        f"{CHECKS}/schemas/v{KUBERNETES[-1]}-standalone-strict/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    )
    command = [
        program("kubeconform"),
        "-strict",
        "-kubernetes-version",
        KUBERNETES[-1],
        "-schema-location",
        location,
    ]
    done = run([*command, str(tmp_path)])
    assert done.returncode == 1
    assert "publishNotreadyAddresses" in done.stdout


def test_every_pod_is_restricted() -> None:
    everything = "\n---\n".join(rendered_text(*values) for values in MATRIX)
    done = run([program("pod-security")], text=everything)
    assert (done.returncode, done.stderr) == (0, "")
    pods = int(done.stdout.split()[0])
    assert pods >= 5 * len(MATRIX)


def test_a_pod_that_is_not_restricted_would_be_found() -> None:
    wrong = rendered_text().replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", 1)
    done = run([program("pod-security")], text=wrong)
    assert done.returncode == 1
    assert "must set securityContext.allowPrivilegeEscalation=false" in done.stderr
