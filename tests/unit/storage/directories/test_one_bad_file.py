"""What one file or directory that is not as it should be takes away: itself, and no whole log directory."""

from __future__ import annotations

import errno
import os

import pytest
from two_disks import CONFIG, FIRST, PATHS, SECOND, Node, fill, refuse

from barnabas.kernel.errors import KafkaError
from barnabas.log.checkpoints.checkpoint_file import LOG_START_OFFSET_FILE, write_offsets
from barnabas.storage.directories.errors import LogLost

KEY = ("t", 0)


def made() -> Node:
    """`t-0` has five records, and `u-0` lies beside it."""
    node = Node()
    _, log = node.begin(FIRST, PATHS[0])
    fill(log, 5)
    node.directories.claim("u", 0, SECOND, is_new=True, preferred=PATHS[0])
    node.directories.open_partition(PATHS[0], "u", 0, SECOND, CONFIG)
    node.directories.write_checkpoints(PATHS[0], {KEY: 5})
    return node


def set_aside(node: Node, high_watermark: int = 5) -> None:
    node.directories.release(*KEY)
    node.directories.set_aside(*KEY, FIRST, high_watermark)


def put(node: Node, path: str) -> None:
    node.files.close(node.files.open(path, os.O_RDWR | os.O_CREAT))


def empty(node: Node) -> None:
    for name in node.files.listdir(f"{PATHS[0]}/t-0"):
        node.files.unlink(f"{PATHS[0]}/t-0/{name}")


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_what_is_set_aside_is_not_read_where_there_is_one_copy(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    node = made()
    set_aside(node)
    refuse(monkeypatch, node, "open", lambda path: "-stray/" in path and path.endswith(".log"), code)
    node.crash()
    assert node.directories.offline == set()
    assert [each.topic for each in node.directories.found] == ["u"]


@pytest.mark.parametrize("name", ["1.log", "2026.log", "rsync.log", "².log"])
def test_a_foreign_file_is_no_segment(name: str) -> None:
    node = made()
    put(node, f"{PATHS[0]}/t-0/{name}")
    node.crash()
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert log.log_end_offset == 5
    set_aside(node)
    node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 5)


def test_a_partition_whose_directory_cannot_be_listed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    node = made()
    with monkeypatch.context() as patch:
        refuse(patch, node, "listdir", lambda path: path == f"{PATHS[0]}/t-0", errno.EACCES)
        node.crash()
        assert node.directories.offline == set()
        with pytest.raises(KafkaError):
            node.begin(FIRST, is_new=False, may_begin_anew=False)
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert log.log_end_offset == 5


@pytest.mark.parametrize("is_new", [True, False])
def test_what_this_process_set_aside_comes_before_what_may_be_in_an_offline_directory(is_new: bool) -> None:
    """Metadata did not know it for a while."""
    node = made()
    with node.failing("list_directories", beginning=PATHS[1]):
        node.crash()
    assert node.directories.offline == {PATHS[1]}
    _, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    fill(log, 2)
    set_aside(node, 7)
    home, log = node.begin(FIRST, is_new=is_new, may_begin_anew=False)
    assert (home, log.log_end_offset) == (PATHS[0], 7)


def test_a_clean_stop_says_so_though_the_place_of_a_lost_log_is_empty() -> None:
    node = made()
    empty(node)
    node.crash()
    for _ in range(2):
        with pytest.raises(LogLost):
            node.begin(FIRST, is_new=False, may_begin_anew=False)
        node.directories.open_partition(PATHS[0], "u", 0, SECOND, CONFIG)
        node.directories.close({KEY: 5}, broker_epoch=7)
        node.open()
    assert node.directories.at(PATHS[0]).was_clean


def test_the_empty_place_of_a_lost_log_is_not_led_when_it_was_set_aside() -> None:
    node = made()
    empty(node)
    node.crash()
    with pytest.raises(LogLost):
        node.begin(FIRST, is_new=False, may_begin_anew=False)
    set_aside(node, 0)
    with pytest.raises(LogLost):
        node.begin(FIRST, is_new=False, may_begin_anew=False)


@pytest.mark.parametrize("suffix", [".log.tmp", ".log"])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_log_that_ends_before_its_start_is_never_without_a_segment(
    monkeypatch: pytest.MonkeyPatch, crashes: bool, suffix: str
) -> None:
    """After power was lost. What cannot be created the next attempt creates."""
    node = made()
    node.directories.abandon()
    write_offsets(node.files, f"{PATHS[0]}/{LOG_START_OFFSET_FILE}", {KEY: 9})
    node.open()
    with monkeypatch.context() as patch:
        refuse(patch, node, "open", lambda path: path.endswith(f"{9:020d}{suffix}"), errno.EMFILE)
        with pytest.raises(KafkaError):
            node.begin(FIRST, is_new=False, may_begin_anew=False)
    if crashes:
        node.crash()
    home, log = node.begin(FIRST, is_new=False, may_begin_anew=False)
    assert (home, log.log_start_offset, log.log_end_offset) == (PATHS[0], 9, 9)


@pytest.mark.parametrize("fails", [{1}, {2}, {1, 2}, {2, 3}])
def test_a_lost_log_is_not_begun_anew_where_a_listing_fails(
    monkeypatch: pytest.MonkeyPatch, fails: set[int]
) -> None:
    """Found at the start; then its place is empty, and the disk does not always say so."""
    node = made()
    node.crash()
    empty(node)
    listdir, seen = node.files.listdir, []

    def sometimes(path: str) -> object:
        seen.extend([path] if path == f"{PATHS[0]}/t-0" else [])
        if len(seen) in fails and path == f"{PATHS[0]}/t-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listdir(path)

    monkeypatch.setattr(node.files, "listdir", sometimes)
    for _ in range(4):
        with pytest.raises(KafkaError):
            node.begin(FIRST, is_new=False, may_begin_anew=False)
