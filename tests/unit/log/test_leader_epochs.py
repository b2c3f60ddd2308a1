"""The epochs of a log, and the file that says them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints import leader_epochs
from barnabas.log.checkpoints.leader_epochs import LeaderEpochCache
from barnabas.log.small_files import SyncError

FILES = SystemFiles()


@pytest.mark.parametrize("fails", ["unlink", "sync"])
def test_a_file_of_epochs_that_could_not_be_removed_is_removed_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    epochs = LeaderEpochCache(FILES, str(tmp_path))
    epochs.assign(9, 5)
    epochs.flush(6)
    synced: list[str] = []

    def sync(_: object, path: str) -> None:
        synced.append(path)
        if fails == "sync":
            raise SyncError(errno.EIO, "sync failed")

    def remove(*_: object) -> None:
        raise OSError(errno.EIO, "unlink failed")

    with monkeypatch.context() as failing:
        failing.setattr(leader_epochs, "sync_directory", sync)
        if fails == "unlink":
            failing.setattr(leader_epochs, "remove_quietly", remove)
        with pytest.raises(OSError, match="failed"):
            epochs.remove_file()
        fails = ""
        failing.undo()
        failing.setattr(leader_epochs, "sync_directory", sync)
        synced.clear()
        epochs.remove_file()
        assert synced == [str(tmp_path)]
        epochs.remove_file()
        assert synced == [str(tmp_path)], "there is none any more"
    assert not Path(epochs.path).exists()
    assert epochs.entries == ((9, 5),), "the log may stay as it was"
    epochs.flush(6)
    assert Path(epochs.path).exists()


def test_epochs_before_what_is_known_rise_with_it(tmp_path: Path) -> None:
    epochs = LeaderEpochCache(FILES, str(tmp_path))
    epochs.assign(4, 5)
    epochs.put_before([])
    assert epochs.entries == ((4, 5),)
    epochs.put_before([(1, 0), (1, 2), (3, 7)])
    assert epochs.entries == ((1, 0), (4, 5)), "what is known stands"
    epochs.put_before([(0, 0)])
    assert epochs.entries == ((1, 0), (4, 5))
    epochs.clear()
    epochs.assign(4, 5)
    epochs.put_before([(2, 1), (4, 3), (4, 5)])
    assert epochs.entries == ((2, 1), (4, 3)), "but may begin earlier"
