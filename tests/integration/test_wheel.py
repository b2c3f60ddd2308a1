"""A project outside the repository: it installs the wheel, has ten lines of pytest, and gets a broker."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).resolve().parents[2]
TEN_LINES: Final = """
import pytest


@pytest.mark.barnabas_topic(partitions=2)
def test_broker(barnabas_cluster, barnabas_topic):
    sent = barnabas_topic.produce([("key", "value"), "another"])
    assert barnabas_topic.wait_for_records(2) == sent
    with barnabas_cluster.fault("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=1):
        assert len(barnabas_topic.records()) == 2
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def processes_of(folder: Path) -> list[str]:
    """The command lines that name `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and str(folder) in command:
            found.append(command)
    return found


def test_a_project_that_installs_the_wheel_gets_a_broker(tmp_path: Path) -> None:
    wheels, project, temporary = tmp_path / "wheels", tmp_path / "project", tmp_path / "t"
    project.mkdir()
    temporary.mkdir()
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT, folder=tmp_path)
    (wheel,) = wheels.glob("barnabas-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        ROOT / "requirements.lock",
        wheel,
        "pytest",
        folder=project,
    )
    (project / "test_it.py").write_text(TEN_LINES)
    output = run(python, "-m", "pytest", "-q", "-W", "error", folder=project, TMPDIR=str(temporary))
    assert "1 passed" in output
    assert list(temporary.glob("barnabas*")) == []
    assert processes_of(tmp_path) == []
