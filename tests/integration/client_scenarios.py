"""Programs that use one client and print a line of JSON for each scenario that they went through."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

CLIENTS: Final = Path(__file__).parent / "clients"

SECONDS_MAX: Final = 240.0
"""Far above what all scenarios of a client take on a busy machine; a program that hangs fails its tests."""


class Outcomes:
    """What the scenarios of one program came to: name → what went wrong, None where nothing did."""

    def __init__(self, errors: Mapping[str, str | None], stderr: str) -> None:
        self.errors = errors
        self._stderr = stderr

    def check(self, scenario: str) -> None:
        """Raise AssertionError unless the program went through this scenario and all was well."""
        assert scenario in self.errors, f"the program did not run it:\n{self._stderr[-5000:]}"
        error = self.errors[scenario]
        assert error is None, error


def run_scenarios(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Outcomes:
    """Run a program to its end; whatever scenarios it does not report have failed."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=False,
        )
        stdout, stderr = done.stdout, done.stderr + f"\nexit status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        stdout = (late.stdout or b"").decode(errors="replace")
        stderr = (late.stderr or b"").decode(errors="replace") + f"\nnot at its end after {SECONDS_MAX:g} s"
    rows: list[dict[str, Any]] = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    return Outcomes({row["scenario"]: row["error"] for row in rows}, stderr)
