from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.data_directory import SOCKET_NAME_BYTES_MAX, SOCKET_PATH_BYTES_MAX, DataDirectory
from barnabas.cli.options import UpRefused


def test_it_is_made_with_all_that_a_start_needs(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "deep" / "data")
    directory.open(nodes=1)
    sockets = directory.sockets
    assert directory.run.is_dir()
    assert (directory.run / "sockets").resolve() == sockets.resolve()
    assert sockets.stat().st_mode & 0o777 == 0o700
    directory.close()
    assert not sockets.exists()
    assert sorted(path.name for path in directory.path.iterdir()) == [".lock", "run"]


def test_a_held_directory_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    first.open(nodes=1)
    with pytest.raises(UpRefused, match=rf"in use by another .* \(process {os.getpid()}\)"):
        DataDirectory(tmp_path).open(nodes=1)
    first.close()
    second = DataDirectory(tmp_path)
    second.open(nodes=1)
    second.close()


def test_a_lock_that_only_ending_children_hold_is_waited_for(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    first.open(nodes=1)
    # A child of a killed supervisor: it has the lock by inheritance, and the pid in the file is nobody's.
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read(1)"],
        pass_fds=(first.lock_descriptor,),
        stdin=subprocess.PIPE,
    )
    os.ftruncate(first.lock_descriptor, 0)
    os.pwrite(first.lock_descriptor, b"4194305\n", 0)  # above the kernel's highest pid
    first.close()
    assert child.stdin is not None
    child.stdin.close()
    second = DataDirectory(tmp_path)
    second.open(nodes=1)
    second.close()
    child.wait()


@pytest.mark.parametrize("nodes", [1, 2])
def test_fewer_nodes_than_the_data_has_are_refused(tmp_path: Path, nodes: int) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"node-{number}").mkdir()
    with pytest.raises(UpRefused, match=r"node-3, .*--nodes 3"):
        DataDirectory(tmp_path).open(nodes)
    directory = DataDirectory(tmp_path)
    directory.open(nodes=3)
    directory.close()


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UpRefused, match="choose a --data-dir that you may write"):
            DataDirectory(path).open(nodes=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_sockets_of_a_killed_supervisor_are_removed(tmp_path: Path) -> None:
    killed = DataDirectory(tmp_path)
    killed.open(nodes=1)
    stale = killed.sockets
    os.close(killed.lock_descriptor)
    directory = DataDirectory(tmp_path)
    directory.open(nodes=1)
    assert not stale.exists()
    directory.close()


def test_socket_paths_stay_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    directory = DataDirectory(tmp_path / "data")
    directory.open(nodes=1)
    assert len(os.fsencode(directory.sockets)) + SOCKET_NAME_BYTES_MAX <= SOCKET_PATH_BYTES_MAX
    directory.close()
