"""kcat, a client that is not ours."""

from __future__ import annotations

import shutil
import subprocess


def kcat(*arguments: str, stdin: str = "") -> str:
    """What kcat writes to stdout. Raises AssertionError when it fails or is missing."""
    assert shutil.which("kcat"), "kcat is missing: install it (Debian, Ubuntu: apt install kcat)"
    done = subprocess.run(
        ["kcat", *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
