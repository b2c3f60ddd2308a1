"""Processes of a chaos cluster: each starts, ends and starts again by its name, and logs into one file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from barnabas.testing.process import wait_until_stopped

HERE: Final = Path(__file__).resolve().parent
STOP_SECONDS_MAX: Final = 60.0
START_SECONDS_MAX: Final = 90.0
POLL_SECONDS: Final = 0.02


class Program:
    """Owns one process after the other, all started by the same command."""

    def __init__(self, name: str, command: Sequence[str], log: Path, http: str = "") -> None:
        """`http` is where it says whether it is ready: `http://127.0.0.1:8080/readyz`."""
        self.name = name
        self.command = list(command)
        self._log = log
        self.http = http
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def has_died(self) -> bool:
        """Whether it ended though nobody ended it."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, number: signal.Signals) -> None:
        """End it by a signal; one that does not end in time is killed, and that raises TimeoutError."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(
                f"{self.name} did not end within {STOP_SECONDS_MAX:g} s of {number.name}"
            ) from None

    def start_beside(self) -> None:
        """Start a process with the same code, a service's, that does nothing and ends by itself. Raises TimeoutError
        where it does not.
        """
        module = self.command[self.command.index("-m") + 1]
        code = (
            "from barnabas.kernel.service import prepare_imports; prepare_imports()\n"
            f"from {module}.__main__ import load; load()"
        )
        try:
            subprocess.run(
                [sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=True, timeout=START_SECONDS_MAX
            )
        except subprocess.SubprocessError as error:
            raise TimeoutError(f"a process beside {self.name} did not end well: {error}") from None

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def is_ready(self) -> bool:
        return not self.http or answers(self.http)

    def wait_ready(self) -> None:
        """Raises TimeoutError with the end of its log."""
        wait_for(self.is_ready, f"{self.name} is ready", START_SECONDS_MAX, self.tail)

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_bytes()[-4_000:].decode(errors="replace") if self._log.exists() else ""


def answers(url: str) -> bool:
    """Whether it answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_for(
    holds: Callable[[], bool], what: str, seconds: float, describe: Callable[[], object] = lambda: ""
) -> float:
    """Return after how many seconds it holds; raises TimeoutError with what `describe` says then."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not after {seconds:g} s: {what}\n{describe()}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


class Links:
    """Owns the proxy (links_proxy.py) and the ports before those of the services."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._rows: list[tuple[str, int, int]] = []
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, name: str, port: int, target: int) -> str:
        """A link `name` whose port leads to the port `target`; returns its address."""
        self._rows.append((name, port, target))
        return f"127.0.0.1:{port}"

    def matching(self, parts: Sequence[str]) -> list[str]:
        """The links whose names contain one of the parts."""
        return [name for name, _, _ in self._rows if any(part in name for part in parts)]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "links_proxy.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._say(json.dumps(self._rows))

    def silence(self, *names: str) -> None:
        """Nothing passes these links until they are healed; what is on its way arrives then."""
        for name in names:
            self._say(f"silence {name}")

    def heal(self, *names: str) -> None:
        for name in names:
            self._say(f"heal {name}")

    def break_all(self, *names: str) -> None:
        """Reset all connections over these links."""
        for name in names:
            self._say(f"break {name}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None

    def _say(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline(), "the proxy ended"
