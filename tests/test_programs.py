"""A fresh machine has what this tree calls by name: Debian's least, or the set-up installs it."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from called_programs import called_in_python, called_in_shell, is_shell, recipes_of, words
from test_tidy import ROOT, python_files, relative, tracked_files

ESSENTIAL: Final = words(
    "apt-get awk basename bash cat chmod chroot cksum cp cut date diff dirname env expand find"
    " grep head id install ln ls mkdir mktemp mv nohup nsenter rm sed seq setpriv setsid sha256sum sleep"
    " sort tail tar timeout touch tr umount unshare update-ca-certificates xargs"
)
"""Debian's essential packages have these, and a machine with ca-certificates."""

NEEDED: Final = {"make", "python3"}
"""What the README asks for."""

IN_THE_ENVIRONMENT: Final = {"barnabas", "lint-imports", "mypy", "pytest", "python", "ruff"}
"""requirements.lock and Barnabas itself, in the virtual environment (or in an image)."""

ELSEWHERE: Final = {
    "conntrack": "deploy/kubernetes/cluster.sh",
    "containerd": "deploy/kubernetes/cluster.sh",
    "ctr": "deploy/kubernetes/cluster.sh",
    "debootstrap": "deploy/engine/engine.sh",
    "docker": "deploy/engine/engine.sh",
    "docker-compose": "deploy/engine/engine.sh",
    "dockerd": "deploy/engine/engine.sh",
    "ip": "deploy/kubernetes/cluster.sh",
    "iptables": "deploy/kubernetes/cluster.sh",
    "kube-proxy": "deploy/kubernetes/programs.sh",
    "kubectl": "deploy/kubernetes/programs.sh",
    "modprobe": "deploy/kubernetes/cluster.sh",
    "nft": "deploy/kubernetes/cluster.sh",
    "openssl": "deploy/kubernetes/cluster.sh",
    "tini": "docker/Dockerfile",
}
"""What verbs other than `make test` call, and the file that brings it."""

ASKED_FIRST: Final = {"git", "sudo", "systemctl"}
"""The caller does without where it is missing."""

SOURCED: Final = {"as_root", "install_packages"}
"""Functions of deploy/setup/as_root.sh."""


def installed() -> set[str]:
    """What `make test` has programs.sh look for."""
    found = re.search(
        r"^\.setup/programs:.*\n\t@deploy/setup/programs\.sh (.*)", _text("Makefile"), re.MULTILINE
    )
    assert found
    return set(found[1].split())


@functools.cache
def called() -> dict[str, set[str]]:
    """Program to the files that call it."""
    files: dict[str, set[str]] = {}
    texts = {relative(path): path.read_text() for path in python_files()}
    python = {
        name: text
        for name, text in texts.items()
        if not name.startswith("services/") or "subprocess" in text or "shutil" in text
    }
    for program, name in called_in_python(python):
        files.setdefault(program, set()).add(name)
    for path in tracked_files():
        for program in _called_by_a_script(path):
            files.setdefault(program, set()).add(relative(path))
    return files


def _called_by_a_script(path: Path) -> set[str]:
    if path == ROOT / "Makefile":
        return called_in_shell(recipes_of(path.read_text()))
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return set()
    return called_in_shell(text) - SOURCED if is_shell(path, text) else set()


def _text(name: str) -> str:
    return (ROOT / name).read_text()


def test_whatever_is_called_by_name_comes_with_the_set_up() -> None:
    known = ESSENTIAL | NEEDED | IN_THE_ENVIRONMENT | ASKED_FIRST | installed() | ELSEWHERE.keys()
    unknown = {program: sorted(files) for program, files in called().items() if program not in known}
    assert unknown == {}, "deploy/setup/programs.sh has to install these"


def test_what_make_test_calls_is_not_left_to_another_verb() -> None:
    """The tests that run by name bring their own."""
    by_name = ("tests/containers/", "tests/kubernetes/", "tests/suites/")
    for program, files in called().items():
        if program in ELSEWHERE:
            tests = [name for name in files if name.startswith("tests/") and not name.startswith(by_name)]
            assert tests == [], program


def test_the_lists_hold_nothing_that_is_called_no_more() -> None:
    assert sorted((ELSEWHERE.keys() | installed()) - called().keys()) == []


def test_programs_sh_says_what_it_installs() -> None:
    script = _text("deploy/setup/programs.sh")
    found = re.search(r"# +programs\.sh PROGRAM\.\.\. +of: (.*)", script)
    assert found
    assert set(found[1].split()) == installed()


def test_called_in_python_finds_what_reaches_a_starter(tmp_path: Path) -> None:
    helper = "import shutil\ndef need(name):\n    return shutil.which(name)\n"
    text = (
        "import asyncio, subprocess\nfrom helper import need\n"
        "def go(words):\n    subprocess.run(words)\n"
        "async def one():\n    command = ['one', '-x']\n    await asyncio.to_thread(subprocess.run, command)\n"
        "go(['two', 'x'])\nneed('three')\nsubprocess.Popen(('four',))\n"
        "print(['five'])\nsubprocess.run(['/bin/six'])\nother.run(['seven'])\n"
    )
    found = {program for program, _ in called_in_python({"a/helper.py": helper, "b/x.py": text})}
    assert found == {"one", "two", "three", "four"}


def test_called_in_shell_finds_what_stands_where_a_command_stands() -> None:
    text = """
own() { one "it's not $x (or this)"; }
own && two 'not | this' | three > /dev/null  # not this
if ! four; then exec env A=1 five; else timeout 3 six; fi
x=$(seven "$(eight)"); list=(not these)
case $x in
    a | b) nine ;;
esac
cat << END | ten
not this
END
[ -n "$x" ] || command -v eleven
./by/path && "$variable" x
"""
    expected = "one two three four five env timeout six seven eight nine cat ten eleven"
    assert called_in_shell(text) == set(expected.split())
