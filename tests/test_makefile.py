"""Any verb may be the first in a fresh clone: the Makefile, run beside programs that do nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from barnabas.cli.options import ETCD_PACKAGE
from test_tidy import ROOT

MAKEFILE: Final = (ROOT / "Makefile").read_text()
TARGETS: Final = sorted(
    {
        *re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE),
        *re.findall(r"^(\.setup/[a-z-]+):", MAKEFILE, re.MULTILINE),
    }
)
SECONDS_MAX: Final = 60.0

SCRIPTS: Final = sorted(set(re.findall(r"(?:[\w-]+/)+[\w-]+\.sh\b", MAKEFILE)))
FROM_THE_ENVIRONMENT: Final = ("python", "pip", "npm", "pytest", "ruff", "mypy", "lint-imports", "barnabas")
FOLDERS: Final = ("protos", "services/barnabas/messages", "tests", "bench")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree with nothing but the Makefile and what it calls; of that, only what makes files does something."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for name in (*SCRIPTS, *(f".venv/bin/{program}" for program in FROM_THE_ENVIRONMENT)):
        script = tmp_path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True)
    # protoc writes stubs, and venv makes an environment with programs.
    (tmp_path / ".venv/bin/python").write_text(
        '#!/bin/sh\ncase "$*" in\n*grpc_tools*) mkdir -p build/protos/barnabas/messages ;;\n'
        '"-m venv "*) mkdir -p "$3/bin" && ln -s /bin/true "$3/bin/pip" && ln -s /bin/true "$3/bin/uv" ;;\nesac\n'
    )
    for name in re.findall(r"^NODE_FOLDERS := (.*)", MAKEFILE, re.MULTILINE)[0].split():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "package-lock.json").write_text("{}")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", TARGETS)
def test_any_verb_can_be_the_first(clone: Path, target: str) -> None:
    # What make tells its children would make this one a child.
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "ARGS"}
    }
    done = subprocess.run(
        ["make", target],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scripts_that_it_calls_are_there() -> None:
    """A clone has one for every name in the Makefile, so that a wrong name would go unnoticed there."""
    assert SCRIPTS
    assert [name for name in SCRIPTS if not os.access(ROOT / name, os.X_OK)] == []


def test_make_run_installs_what_its_flags_need() -> None:
    """README shows `make run ARGS="... --etcd ..."` to whoever has run nothing else."""
    (extras,) = re.findall(r"^\.setup/runtime:.*\n(?:\t.*\n)*?\t.*-e '\.\[(.*)\]'$", MAKEFILE, re.MULTILINE)
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = [package for extra in extras.split(",") for package in offered[extra]]
    assert any(re.match(rf"{ETCD_PACKAGE}\b", package) for package in packages)
