"""Whether a disk takes what is written, and that nothing is left of looking."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from barnabas.kernel.files import SystemFiles
from barnabas.storage.directories.disk_probe import PROBE_BYTES, write_probe


class Refusing(SystemFiles):
    """Its call `name` is refused."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.written = 0
        self.closed = 0
        if name:
            setattr(self, name, self._refuse)

    def _refuse(self, *_: object) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")

    def pwrite(self, fd: int, data: Any, position: int, /) -> int:
        count = SystemFiles.pwrite(fd, data[:100_000], position)  # a disk may take less than all
        self.written += count
        return count

    def close(self, fd: int, /) -> None:
        self.closed += 1
        SystemFiles.close(fd)


def test_a_disk_that_is_well_has_taken_all_of_it(tmp_path: Path) -> None:
    files = Refusing()
    write_probe(files, str(tmp_path))
    assert (files.written, files.closed, list(tmp_path.iterdir())) == (PROBE_BYTES, 1, [])


@pytest.mark.parametrize("name", ["open", "unlink", "pwrite", "fdatasync"])
def test_a_disk_that_refuses_anything_is_not_well(tmp_path: Path, name: str) -> None:
    files = Refusing(name)
    with pytest.raises(OSError, match="no space left"):
        write_probe(files, str(tmp_path))
    assert files.closed == (name != "open")
    left = [each.stat().st_size for each in tmp_path.iterdir()]
    assert left == ([0] if name == "unlink" else [])
    write_probe(SystemFiles(), str(tmp_path))
    assert not list(tmp_path.iterdir())
