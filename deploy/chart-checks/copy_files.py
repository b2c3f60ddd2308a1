"""Copy the dashboards and rules of deploy/observability into the chart, because a chart reads nothing outside itself.

copy_files.py            copy them; what is no longer there goes
copy_files.py --check    only say (status 1) which copies are stale
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = ROOT / "charts" / "barnabas" / "files"
OBSERVABILITY: Final = ROOT / "deploy" / "observability"

FOLDERS: Final = {
    FILES / "dashboards": (OBSERVABILITY / "grafana" / "dashboards", "*.json"),
    FILES / "rules": (OBSERVABILITY / "rules", "*.yaml"),
}


def stale() -> dict[Path, bytes | None]:
    """What must be written to each copy that is not as its original; None where it must go."""
    changes: dict[Path, bytes | None] = {}
    for copies, (originals, pattern) in FOLDERS.items():
        wanted = {path.name: path.read_bytes() for path in sorted(originals.glob(pattern))}
        for name, content in wanted.items():
            copy = copies / name
            if not copy.is_file() or copy.read_bytes() != content:
                changes[copy] = content
        for copy in sorted(copies.glob(pattern)):
            if copy.name not in wanted:
                changes[copy] = None
    return changes


def main(arguments: list[str]) -> None:
    """Copy or check; see the top of this file."""
    changes = stale()
    if arguments == ["--check"]:
        if changes:
            names = ", ".join(path.relative_to(FILES).as_posix() for path in changes)
            sys.exit(f"stale in charts/barnabas/files: {names}; run deploy/chart-checks/copy_files.py")
        return
    if arguments:
        sys.exit("usage: copy_files.py [--check]")
    for path, content in changes.items():
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1:])
