"""A Java program of `clients/java` that runs beside a test: compiled, started, watched, killed, stopped in order."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from client_scenarios import CLIENTS
from kafka_tools import JARS, START_QUICKLY

COMPILE_SECONDS_MAX: Final = 90.0
STOP_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.05
LOG_CHARACTERS_SHOWN: Final = 8_000


def jars_of(name: str) -> Path:
    """The folder that `make jars` filled for `name`; fails without it, as a test that is not run proves nothing."""
    folder = JARS.parent / name
    assert any(folder.glob("*.jar")), f"{folder} is empty: `make jars` fetches what belongs there"
    return folder


def compiled(source: str, classes: Path, *jars: Path) -> str:
    """Compile one file of `clients/java` into a folder; returns the class path to run it with."""
    path = ":".join(f"{folder}/*" for folder in jars)
    command = ["javac", "-d", str(classes), "-cp", path, str(CLIENTS / "java" / source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return f"{classes}:{path}"


class JavaProgram:
    """Owns one JVM and the file with all that it wrote, from `with` to its end."""

    def __init__(self, class_path: str, main: str, *arguments: str, log: Path) -> None:
        self._command = ["java", *START_QUICKLY, "-cp", class_path, main, *arguments]
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def log(self) -> str:
        """All that it wrote, and those before it with the same file."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, whether it still runs or not."""
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """Let it end in order (SIGTERM), and return its status."""
        self._process.terminate()
        return self._process.wait(STOP_SECONDS_MAX)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Return when the condition holds; fails when the program ends before that, or with the time."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._process.poll() is None, f"it ended by itself: {self.log()[-LOG_CHARACTERS_SHOWN:]}"
            assert time.monotonic() < deadline, (
                f"not after {seconds:g} s: {self.log()[-LOG_CHARACTERS_SHOWN:]}"
            )
            time.sleep(POLL_SECONDS)
