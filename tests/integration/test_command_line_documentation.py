"""Every example of docs/command-line.md, run in its order by a shell; where the page shows output, it is that output.

`…` in the page stands for anything in a line, and alone in a line for any lines.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

from command_line import CommandLine

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
SECONDS_MAX: Final = 60.0


def examples() -> list[tuple[str, list[str]]]:
    """(command, lines of output shown) in the order of the page."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


def pattern_of(lines: list[str]) -> str:
    return "".join(r"(?:[^\n]*\n)*?" if line == "…" else line_pattern(line) for line in lines)


def line_pattern(line: str) -> str:
    """Widths of columns differ with ids and host names, so any number of spaces will do."""
    text = re.escape(line).replace("…", r"[^\n]*")
    return re.sub(r"(?:\\ )+", "[ ]+", text) + "[ ]*\n"


def test_every_example(cluster: Any, tmp_path: Path) -> None:
    run = CommandLine(cluster.bootstrap)
    environment = {**run.environment, "DATA_DIR": str(cluster.data_dir)}
    commands = {
        command.split()[1] for line, _ in examples() for command in re.findall(r"barnabas [a-z-]+", line)
    }
    for line, shown in examples():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        output = done.stdout.decode(errors="replace")
        # Indexes of a log in use lag behind it, which dump-log of a whole folder may notice.
        assert done.returncode == 0, f"$ {line}\n{output}\n{done.stderr.decode()}"
        if shown:
            assert re.fullmatch(pattern_of(shown), output), f"$ {line}\n{output}"
    assert {
        "topics",
        "configs",
        "groups",
        "produce",
        "consume",
        "offsets",
        "log-dirs",
        "dump-log",
    } <= commands
    assert {"delete-records", "transactions", "cluster", "nodes", "rebalance", "doctor", "perf"} <= commands
