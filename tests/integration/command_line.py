"""The real executable `barnabas`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SECONDS_MAX: Final = 60.0


@dataclass(frozen=True)
class Result:
    """What a command left."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def data(self) -> Any:
        return json.loads(self.stdout)

    @property
    def records(self) -> list[Any]:
        """JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class CommandLine:
    """Runs `barnabas` against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")},
            "PATH": f"{executable().parent}:{os.environ['PATH']}",
            "BARNABAS_BOOTSTRAP_SERVER": bootstrap,
            "TERM": "xterm-256color",
            "COLUMNS": "120",
        }

    def __call__(self, *arguments: str, stdin: bytes | str = b"", status: int | None = 0) -> Result:
        """Run one command to its end; it must exit with `status`, or with any, and a failure is one line on stderr."""
        done = subprocess.run(
            [str(executable()), *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.environment,
            timeout=SECONDS_MAX,
            check=False,
        )
        stderr = done.stderr.decode()
        assert status is None or done.returncode == status, (
            f"barnabas {' '.join(arguments)} exited with {done.returncode}, not {status}:\n"
            f"{done.stdout[-2000:]!r}\n{stderr[-4000:]}"
        )
        assert "Traceback" not in stderr, stderr
        return Result(done.returncode, done.stdout, stderr)

    def findings(self, *, status: int) -> list[dict[str, Any]]:
        """What `doctor` says, by which it exits with `status`, but for how full the disk of this machine is."""
        done = self("doctor", "--output", "json", status=None)
        assert done.status == any(each["isProblem"] for each in done.data)
        found = [each for each in done.data if each["check"] != "disk-nearly-full"]
        assert status == any(each["isProblem"] for each in found), found
        return found

    def refused(self, *arguments: str, stdin: bytes | str = b"", status: int = 1) -> str:
        """Run a command that must fail; returns the line that says why."""
        result = self(*arguments, stdin=stdin, status=status)
        lines = result.stderr.splitlines()
        assert lines, "a failure says why"
        assert lines[-1].startswith("barnabas: "), result.stderr
        return lines[-1].removeprefix("barnabas: ")


def executable() -> Path:
    """The installed script beside this interpreter."""
    return Path(sys.executable).parent / "barnabas"
