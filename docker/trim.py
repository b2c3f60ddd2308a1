"""Take out of a virtual environment what one service's container never uses, and compile what stays.

`trim.py VENV` for the libraries that all images share; it leaves a list of them in the working directory. Once more as
`trim.py VENV SERVICE INTO` for what was installed after that: what stays of it goes to INTO, a layer of its own that
holds nothing twice.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys
from pathlib import Path
from typing import Final

NOT_NEEDED: Final = (".c", ".h", ".pyx", ".pxd", ".pxi", ".pyi", ".a")
"""Sources and headers of compiled modules, and what only type checkers read."""

FOLDERS_NOT_NEEDED: Final = frozenset({"test", "tests", "_testbase", "__pycache__"})

WHOLE: Final = "barnabas"
"""The image that has every service and the command line."""

HOSTED: Final = {"broker": frozenset({"host", "gateway", "storage", "coordinator"})}
"""The packages of an image whose one process is several services; those of the others are named as their image."""

CLIENTS: Final = frozenset({"cli", "testing"})
"""Packages beside the services that no service imports."""

LIST: Final = Path("libraries.txt")
"""The files that the layer of libraries has."""


def main(environment: Path, service: str = "", into: str = "") -> None:
    """Trim `environment`: its libraries, or what was installed for `service` since."""
    before = frozenset(LIST.read_text().splitlines()) if service else frozenset()
    (packages,) = environment.glob("lib/python3*/site-packages")
    if service and service != WHOLE:
        _drop_other_services(environment, packages / "barnabas", service)
    for path in _installed(packages, before):
        if path.suffix in NOT_NEEDED or FOLDERS_NOT_NEEDED & set(path.relative_to(packages).parts):
            path.unlink()
    sources = [path for path in _installed(packages, before) if path.suffix == ".py"]
    # The files never change: nothing is gained from asking for their time at every import.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not all(compileall.compile_file(path, quiet=1, invalidation_mode=mode) for path in sources):
        sys.exit("trim.py: some modules do not compile")
    if into:
        for path in _installed(environment, before):
            target = Path(into) / path.relative_to(environment)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
    else:
        LIST.write_text("".join(f"{path}\n" for path in _installed(environment, before)))


def _installed(folder: Path, before: frozenset[str]) -> list[Path]:
    """Files below `folder` that are not among `before`."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())
    return [path for path in found if str(path) not in before]


def _drop_other_services(environment: Path, barnabas: Path, service: str) -> None:
    kept = HOSTED.get(service, frozenset({service}))
    for name in kept:
        if not (barnabas / name / "__main__.py").is_file():
            sys.exit(f"trim.py: {name} is no service: a folder of services/barnabas with a __main__.py")
    for package in barnabas.iterdir():
        is_other_service = (package / "__main__.py").is_file() and package.name not in kept
        if package.is_dir() and (is_other_service or package.name in CLIENTS):
            shutil.rmtree(package)
    (environment / "bin" / "barnabas").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
