"""The files with offsets are written where they are to say something new, and again after a failure."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints import offset_files
from barnabas.log.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from barnabas.log.checkpoints.offset_files import OffsetFiles

KEY = ("t", 0)


def test_a_file_is_written_when_it_is_to_say_something_new(tmp_path: Path) -> None:
    files = OffsetFiles(SystemFiles(), str(tmp_path))
    path = tmp_path / HIGH_WATERMARK_FILE
    offsets = {KEY: 1}
    files.write(HIGH_WATERMARK_FILE, offsets)
    path.unlink()
    files.write(HIGH_WATERMARK_FILE, offsets)
    assert not path.exists(), "it would say the same"
    files.write(RECOVERY_POINT_FILE, offsets)
    assert read_offsets(SystemFiles(), str(tmp_path / RECOVERY_POINT_FILE)) == offsets
    offsets[KEY] = 2  # by its owner, in place
    files.write(HIGH_WATERMARK_FILE, offsets)
    assert read_offsets(SystemFiles(), str(path)) == {KEY: 2}


def test_what_a_process_before_this_one_wrote_does_not_count(tmp_path: Path) -> None:
    OffsetFiles(SystemFiles(), str(tmp_path)).write(HIGH_WATERMARK_FILE, {})
    (tmp_path / HIGH_WATERMARK_FILE).unlink()
    OffsetFiles(SystemFiles(), str(tmp_path)).write(HIGH_WATERMARK_FILE, {})
    assert (tmp_path / HIGH_WATERMARK_FILE).exists()


def test_after_a_failure_it_is_not_known_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = OffsetFiles(SystemFiles(), str(tmp_path)), tmp_path / HIGH_WATERMARK_FILE
    files.write(HIGH_WATERMARK_FILE, {KEY: 1})

    def torn(*_: object) -> None:
        path.write_text("0\n1\nt 0 2\n")  # it stands there, but was not synced
        raise OSError(errno.EIO, "the disk refuses")

    with monkeypatch.context() as patch:
        patch.setattr(offset_files, "write_offsets", torn)
        with pytest.raises(OSError, match="refuses"):
            files.write(HIGH_WATERMARK_FILE, {KEY: 2})
    files.write(HIGH_WATERMARK_FILE, {KEY: 1})
    assert read_offsets(SystemFiles(), str(path)) == {KEY: 1}
