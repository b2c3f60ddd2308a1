"""Fetching clients' packages through the ordinary clients of their registries, into folders that may be written to.

What is fetched gets its name only when it is whole, so that an interrupted run leaves nothing that looks complete.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

FETCH_SECONDS_MAX: Final = 300.0
BUILD_SECONDS_MAX: Final = 900.0
"""Compiling on a machine that does other things too."""


def run(
    command: Sequence[str], *, cwd: Path, seconds: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end or for `seconds`; what was printed by then comes back either way, with status 124 when late."""
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
        text = printed if isinstance(printed, str) else printed.decode(errors="replace")
        return subprocess.CompletedProcess(command, 124, text)


def must(command: Sequence[str], *, cwd: Path, seconds: float, env: Mapping[str, str] | None = None) -> str:
    """Run and return what was printed; raises RuntimeError with the end of it when it fails."""
    done = run(command, cwd=cwd, seconds=seconds, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def source_distribution(name: str, version: str, work: Path) -> Path:
    """The unpacked source distribution of a Python package."""
    folder = work / f"{name.replace('-', '_')}-{version}"
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        must([*pip, f"{name}=={version}"], cwd=work, seconds=FETCH_SECONDS_MAX)
        part = _fresh_part(folder)
        must(["tar", "-xzf", str(work / f"{folder.name}.tar.gz")], cwd=part, seconds=FETCH_SECONDS_MAX)
        (part / folder.name).rename(folder)
        part.rmdir()
    return folder


def python_packages(requirements: Sequence[str], folder: Path) -> None:
    """Install packages into a folder of their own."""
    if not folder.is_dir():
        part = _fresh_part(folder)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(part)]
        must([*pip, *requirements], cwd=folder.parent, seconds=FETCH_SECONDS_MAX)
        part.rename(folder)


def go_module(module: str, version: str, work: Path) -> Path:
    """A copy of a Go module, because the module cache may not be written to."""
    folder = work / f"{module.rpartition('/')[2]}-{version}"
    if not folder.is_dir():
        found = must(
            ["go", "mod", "download", "-json", f"{module}@{version}"], cwd=work, seconds=FETCH_SECONDS_MAX
        )
        part = _fresh_part(folder)
        shutil.copytree(json.loads(found[found.index("{") :])["Dir"], part, dirs_exist_ok=True)
        for path in [part, *part.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        part.rename(folder)
    return folder


def _fresh_part(folder: Path) -> Path:
    """An empty folder beside `folder`, for what is still on its way into it."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    return part


def go_program(package: str, version: str, folder: Path) -> Path:
    """A program of a Go module, compiled into a folder of its own."""
    if not folder.is_dir():
        part = _fresh_part(folder)
        env = {**os.environ, "GOBIN": str(part)}
        must(["go", "install", f"{package}@{version}"], cwd=part, seconds=BUILD_SECONDS_MAX, env=env)
        part.rename(folder)
    return folder / package.rpartition("/")[2]


def go_test_program(folder: Path, package: str, program: Path, *, tags: str = "") -> Path:
    """The compiled tests of one package."""
    if not program.is_file():
        command = ["go", "test", "-mod=mod", f"-tags={tags}", "-c", "-o", str(program), package]
        must(command, cwd=folder, seconds=BUILD_SECONDS_MAX)
    return program
