"""The shape of the tree, held as a ratchet: sizes, names, maps at every level, nothing of one machine.

A rule that must be broken for now is broken in EXCEPTIONS, which may only shrink: an entry that is no longer needed
fails too.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

import grimp
import pytest

from barnabas.kernel.files import SystemFiles

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ROOT / "services" / "barnabas"
GENERATED: Final = "services/barnabas/messages/"

FUNCTION_LINES_MAX: Final = 60
FILE_LINES_MAX: Final = 500

MODULE_NAMES_BANNED: Final = {"common", "utils", "util", "helpers", "helper", "manager", "misc"}
"""Packages and modules are named for what they are."""

SUBPACKAGES_WITHOUT_README: Final = {"handlers", "core", "store"}
"""The README of the package above says what they are; every service uses the same names."""

FROM_ENVIRONMENT: Final = (
    "what a service asks of the world comes from its environment (kernel/environment.py)"
)

EXCEPTIONS: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        # The canary is a client: librdkafka waits in threads, and what it measures is the real world.
        (FROM_ENVIRONMENT, "services/barnabas/canary/gateway_client.py: threading.Thread"),
        (FROM_ENVIRONMENT, "services/barnabas/canary/gateway_client.py: asyncio.to_thread"),
        (FROM_ENVIRONMENT, "services/barnabas/canary/probing.py: asyncio.to_thread"),
    }
)
"""(rule, place) of what is not tidy yet."""

WITHOUT_ENVIRONMENT: Final = {"cli", "testing", "pipelines"}
"""Packages of which nothing runs inside a service."""

MAKERS_OF_THE_ENVIRONMENT: Final = {"kernel/clock.py", "kernel/threads.py", "kernel/service.py"}

WORLD: Final = {
    *(f"time.{name}" for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
    *(f"uuid.{name}" for name in ("uuid1", "uuid4")),
    *(
        "os.urandom",
        "secrets.token_bytes",
        "secrets.token_hex",
        "secrets.token_urlsafe",
        "random.SystemRandom",
    ),
    *(
        f"random.{name}"
        for name in ("random", "randint", "randrange", "choice", "shuffle", "sample", "uniform")
    ),
    *("threading.Thread", "threading.Timer", "asyncio.to_thread", "concurrent.futures.ThreadPoolExecutor"),
    "prometheus_client.REGISTRY",
}
"""What nothing below the kernel uses. `perf_counter` is no part of it: it measures how long something took, for a
histogram and never for a decision, and is read several times a request."""

MACHINE_SECONDS: Final = "barnabas.kernel.clock.machine_seconds"

DECIDED_BY_THE_MACHINE: Final = {
    "kernel/metrics_page.py": "how long the event loop is held up at a time",
    "storage/directories/directory_lane.py": "whether a disk is slow or stalled",
    "storage/directories/record_checks.py": "how much of the event loop's time goes into looking at records",
    "storage/handlers/append_operation.py": "as directory_lane.py, which is told how long the append took",
    "storage/replica/appending.py": "as directory_lane.py, which is told how long the append took",
    "storage/replica/following.py": "as directory_lane.py, which is told how long the append took",
    "storage/replica/refusing_log.py": "whether a log refuses what its disk takes, as directory_lane.py of the disk",
    "storage/upkeep/cleaning.py": "how fast the cleaner reads and writes",
}
"""Who asks for `machine_seconds`, and what follows from them: no setting's time, and no peer's."""

KEEPERS_OF_FILES: Final = {"log", "storage"}
"""Packages whose files come from the environment too: in a simulation their disks fail."""

FILE_CALLS: Final = {
    "open",
    "io.open",
    "pathlib.Path",
    "fcntl.flock",
    *(f"shutil.{name}" for name in ("rmtree", "disk_usage", "copyfile", "copytree", "move")),
    *(f"os.path.{name}" for name in ("exists", "lexists", "isdir", "isfile", "getsize", "getmtime")),
    *(f"os.{name}" for name in vars(SystemFiles) if name in os.__all__),
    *(
        f"os.{name}"
        for name in (
            "read",
            "write",
            "lseek",
            "mkdir",
            "rmdir",
            "remove",
            "replace",
            "scandir",
            "truncate",
            "walk",
        )
    ),
}
"""What they ask of `Files` instead."""

METRICS: Final = {
    f"prometheus_client.{kind}" for kind in ("Counter", "Gauge", "Histogram", "Summary", "Info")
}
"""They belong to the registry that they are given, and without one to all of the process."""

REGISTRIES: Final = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
    )
]
"""Put together here, so that this file does not name one either."""

MADE: Final = {"artifacts", "build", "data", "demo-output", "dist"}
MADE_ANYWHERE: Final = {"__pycache__", "node_modules", "target"}
"""Folders that verbs and programs make: at the top, and anywhere."""

HOME: Final = re.compile(r"(?<![\w.~}$-])/(?:root|home)/\w")


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Files that git knows or would add.

    Without git, or in a source archive: all but hidden ones and what verbs make.
    """
    names = files_of_git()
    paths = (ROOT / name for name in names) if names else files_without_git()
    return tuple(sorted(path for path in paths if path.is_file()))


def files_of_git() -> list[str]:
    """Their names; empty where git is missing or knows nothing of this tree."""
    options = ["-z", "--cached", "--others", "--exclude-standard"]
    command = ["git", "-c", "safe.directory=*", "ls-files", *options]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return [name for name in done.stdout.decode().split("\0") if name]


def files_without_git() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if parts[0] not in MADE and not any(part.startswith(".") or part in MADE_ANYWHERE for part in parts):
            yield path


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files() -> list[Path]:
    """Python that people write."""
    return [
        path for path in tracked_files() if path.suffix == ".py" and not relative(path).startswith(GENERATED)
    ]


def long_files() -> Iterator[str]:
    for path in python_files():
        if len(path.read_text().splitlines()) > FILE_LINES_MAX:
            yield relative(path)


def long_functions() -> Iterator[str]:
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX:
                    yield f"{relative(path)}:{node.name}"


def packages_without_readme() -> Iterator[str]:
    for path in tracked_files():
        package = path.parent
        if (
            path.name == "__init__.py"
            and package.is_relative_to(PACKAGES)
            and package != PACKAGES
            and package.name not in SUBPACKAGES_WITHOUT_README
            and not (package / "README.md").is_file()
        ):
            yield relative(package)


def modules_not_in_readme() -> Iterator[str]:
    """Modules that the README of their folder does not name in code quotes, with or without `.py`.

    A folder without a README of its own is described by the one above. What is in `handlers/` bears the name of the
    request that it serves and needs no list; a package's own `__init__` and `__main__` neither.
    """
    for path in python_files():
        package = path.parent
        if (
            not package.is_relative_to(PACKAGES)
            or package == PACKAGES
            or package.name == "handlers"
            or path.stem in {"__init__", "__main__"}
        ):
            continue
        readme = next(folder / "README.md" for folder in path.parents if (folder / "README.md").is_file())
        quoted = " ".join(re.findall(r"`[^`\n]+`", readme.read_text()))
        if not re.search(rf"(?<![\w.]){path.stem}(?:\.py)?(?![\w.])", quoted):
            yield relative(path)


def import_circles() -> Iterator[str]:
    """Modules that import one another, at whatever moment.

    Imports for the type checker alone do not count: two classes may name each other, and neither needs the other's
    module to be there first.
    """
    graph = grimp.build_graph("barnabas", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while True:
        try:
            graphlib.TopologicalSorter(imports).prepare()
        except graphlib.CycleError as error:
            circle: list[str] = error.args[1]
            yield " <- ".join(circle)
            imports[circle[1]].discard(circle[0])
        else:
            return


def links_that_name_an_implementation() -> Iterator[str]:
    """import-linter leaves out what is imported for the type checker; a protocol's types are of nothing else."""
    for path in (PACKAGES / "links").rglob("*.py"):
        if re.search(r"\bbarnabas\.(rpc|host)\b|\bgrpc\b", path.read_text()):
            yield relative(path)


def folders_without_readme() -> Iterator[str]:
    """Top-level folders, of which the README has one row each."""
    rows = (ROOT / "README.md").read_text()
    folders = {relative(path).split("/")[0] for path in tracked_files() if path.parent != ROOT}
    for folder in sorted(folders):
        if not folder.startswith(".") and not (
            (ROOT / folder / "README.md").is_file() and f"[`{folder}/`]" in rows
        ):
            yield folder


def vague_names() -> Iterator[str]:
    for path in python_files():
        if {path.stem, *path.relative_to(ROOT).parts[:-1]} & MODULE_NAMES_BANNED:
            yield relative(path)


def repeated_names_of_tests() -> Iterator[str]:
    """pytest imports a test module by its bare name: the second of a name ends a run of all of them."""
    places: dict[str, list[str]] = {}
    for path in python_files():
        if path.name.startswith("test_"):
            places.setdefault(path.name, []).append(relative(path))
    yield from (", ".join(each) for each in places.values() if len(each) > 1)


def modules_with_eager_annotations() -> Iterator[str]:
    for path in python_files():
        text = path.read_text()
        if ast.parse(text).body and "from __future__ import annotations" not in text:
            docstring_only = path.name == "__init__.py" and not re.search(
                r"^(import|from|def|class) ", text, re.MULTILINE
            )
            if not docstring_only:
                yield relative(path)


def modules_in_an_environment() -> Iterator[tuple[Path, Path]]:
    """Modules that run inside a service, and their paths below the packages."""
    for path in python_files():
        if path.is_relative_to(PACKAGES):
            module = path.relative_to(PACKAGES)
            if module.parts[0] not in WITHOUT_ENVIRONMENT:
                yield path, module


def uses_of_the_world() -> Iterator[str]:
    for path, module in modules_in_an_environment():
        if module.as_posix() in MAKERS_OF_THE_ENVIRONMENT:
            continue
        world = WORLD | FILE_CALLS if module.parts[0] in KEEPERS_OF_FILES else WORLD
        for name in sorted(names_from_the_world(ast.parse(path.read_text()), world)):
            yield f"{relative(path)}: {name}"


def decisions_by_other_times() -> Iterator[str]:
    """Comparisons with `perf_counter`, and who uses `machine_seconds` without a line in the list, or no longer."""
    askers = set()
    for path, module in modules_in_an_environment():
        tree = ast.parse(path.read_text())
        yield from (f"{relative(path)}: {decision}" for decision in decisions_by_perf_counter(tree))
        if MACHINE_SECONDS in names_from_the_world(tree, {MACHINE_SECONDS}):
            askers.add(module.as_posix())
    yield from sorted(askers ^ DECIDED_BY_THE_MACHINE.keys())


def decisions_by_perf_counter(tree: ast.Module) -> Iterator[str]:
    """Comparisons with what `perf_counter` gave, directly or by a name of the same class or module; and parameters that
    it is the default of, since nobody knows what becomes of them.
    """

    def is_measured(node: ast.AST) -> bool:
        return any(
            isinstance(each, ast.Call) and ast.unparse(each.func).split(".")[-1] == "perf_counter"
            for each in ast.walk(node)
        )

    scopes = [
        node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for scope in scopes:
        measured = {
            ast.unparse(target)
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and is_measured(node.value)
            for target in node.targets
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.Compare) and (
                is_measured(node) or {ast.unparse(each) for each in ast.walk(node)} & measured
            ):
                yield ast.unparse(node)
            if isinstance(node, ast.arguments):
                defaults = [*node.defaults, *filter(None, node.kw_defaults)]
                yield from (name for name in map(ast.unparse, defaults) if name.endswith("perf_counter"))


def names_from_the_world(tree: ast.Module, world: Set[str] = WORLD) -> Iterator[str]:
    """Of what `world` names, that which the module uses; chance without a seed and metrics without a registry too."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    found = {name for name in imported.values() if name in world}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in world:
            found.add(name)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            called = imported.get(called, called)
            is_seeded = called != "random.Random" or node.args
            has_registry = called not in METRICS or any(each.arg == "registry" for each in node.keywords)
            uses_default_pool = called.endswith(".run_in_executor") and ast.unparse(node.args[0]) == "None"
            is_builtin = called == "open" and called in world
            if not is_seeded or not has_registry or uses_default_pool or is_builtin:
                found.add(called)
    yield from found


def machine_paths() -> Iterator[str]:
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if HOME.search(text) or any(host in text for host in REGISTRIES):
            yield relative(path)


RULES: Final = {
    f"a file has at most {FILE_LINES_MAX} lines": long_files,
    f"a function has at most {FUNCTION_LINES_MAX} lines": long_functions,
    "a package has a README.md": packages_without_readme,
    "modules do not import one another in a circle": import_circles,
    "links/ names none of those who implement it": links_that_name_an_implementation,
    "a README.md names every module of its folder": modules_not_in_readme,
    "a top-level folder has a README.md and a row in the README": folders_without_readme,
    "a module is named for what it is": vague_names,
    "no two modules of tests have one name": repeated_names_of_tests,
    FROM_ENVIRONMENT: uses_of_the_world,
    "what is decided goes by a clock that kernel/clock.py names": decisions_by_other_times,
    "a module starts with `from __future__ import annotations`": modules_with_eager_annotations,
    "no file names a home directory or a package registry": machine_paths,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_is_tidy(rule: str) -> None:
    excepted = {place for excepted_rule, place in EXCEPTIONS if excepted_rule == rule}
    found = set(RULES[rule]())
    assert sorted(found - excepted) == [], rule
    assert sorted(excepted - found) == [], "tidy now: take it out of EXCEPTIONS"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time\nstarted = time.monotonic()", ["time.monotonic"]),
        ("from time import perf_counter, time_ns", ["time.time_ns"]),
        ("import uuid\nmade = uuid.uuid4().hex\nread = uuid.UUID(int=1)", ["uuid.uuid4"]),
        ("import random\nchance: random.Random = random.Random()", ["random.Random"]),
        ("import random\nchance = random.Random(7)\nx = chance.random()", []),
        (
            "from concurrent.futures import Executor, ThreadPoolExecutor",
            ["concurrent.futures.ThreadPoolExecutor"],
        ),
        ("loop.run_in_executor(None, work)\nloop.run_in_executor(pool, work)", ["loop.run_in_executor"]),
        ("from prometheus_client import Gauge\nUP = Gauge('up', '')", ["prometheus_client.Gauge"]),
        ("import prometheus_client\ng = prometheus_client.Gauge('up', '', registry=mine)", []),
        ("from collections import Counter\nseen = Counter()", []),
    ],
)
def test_uses_of_the_world_are_seen(code: str, found: list[str]) -> None:
    assert sorted(names_from_the_world(ast.parse(code))) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f():\n    return perf_counter() - began > 8", ["perf_counter() - began > 8"]),
        ("def f():\n    began = time.perf_counter()\n    observe(time.perf_counter() - began)", []),
        (
            "class A:\n    def a(self):\n        self.at = perf_counter()\n"
            "    def b(self, now):\n        return now > self.at",
            ["now > self.at"],
        ),
        ("def f(now=perf_counter): pass", ["perf_counter"]),
        ("class A:\n    def f(self, *, now=time.perf_counter): pass", ["time.perf_counter"]),
    ],
)
def test_decisions_by_what_only_measures_are_seen(code: str, found: list[str]) -> None:
    assert list(decisions_by_perf_counter(ast.parse(code))) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nfd = os.open(path, os.O_RDONLY)\nplace = os.path.join(path, name)", ["os.open"]),
        ("import os\nthere = os.path.exists(path)", ["os.path.exists"]),
        ("with open(path) as file:\n    pass\nself.open(path)\nsegment.open()", ["open"]),
        ("from pathlib import Path", ["pathlib.Path"]),
        ("from os import fsync as sync", ["os.fsync"]),
        ("import shutil\nshutil.rmtree(path)", ["shutil.rmtree"]),
    ],
)
def test_uses_of_files_are_seen(code: str, found: list[str]) -> None:
    assert sorted(names_from_the_world(ast.parse(code), FILE_CALLS)) == found


def test_exceptions_name_rules_that_exist() -> None:
    assert {rule for rule, _ in EXCEPTIONS} <= set(RULES)


def test_every_message_service_and_field_of_the_contracts_has_a_comment() -> None:
    declaration = re.compile(r"message |service |\s+(rpc \w+|(repeated |optional )?[\w.<>, ]+ \w+ = \d+;)")
    bare = []
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        lines = path.read_text().splitlines()
        bare += [
            f"{path.name}:{number}: {line.strip()}"
            for number, (before, line) in enumerate(itertools.pairwise(lines), start=2)
            if declaration.match(line) and not before.lstrip().startswith("//")
        ]
    assert bare == []


def test_without_git_the_same_files_are_looked_at() -> None:
    hidden = {
        path for path in tracked_files() if any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    found = {path for path in files_without_git() if path.is_file()}
    assert set(tracked_files()) - hidden <= found
    extra = {relative(path) for path in found - set(tracked_files())}
    assert {name for name in extra if not name.endswith(".pyc")} == set()
