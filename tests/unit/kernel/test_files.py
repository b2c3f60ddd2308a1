"""The machine's files and those in memory do the same, as long as the power stays."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.kernel.files import Files, SystemFiles
from barnabas.kernel.memory_files import SECTOR_BYTES, MemoryFiles

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL


@pytest.fixture(params=[SystemFiles, MemoryFiles])
def files(request: pytest.FixtureRequest) -> Files:
    made: Files = request.param()
    return made


@pytest.fixture
def place(files: Files, tmp_path: Path) -> str:
    files.makedirs(str(tmp_path))
    return str(tmp_path)


def create(files: Files, path: str, *writes: bytes) -> int:
    fd = files.open(path, NEW)
    position = 0
    for data in writes:
        assert files.pwrite(fd, data, position) == len(data)
        position += len(data)
    return fd


def refused(action: Callable[[], object]) -> int:
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        action()
    assert caught.value.errno is not None
    return caught.value.errno


def test_a_file_by_descriptor(files: Files, place: str) -> None:
    fd = create(files, f"{place}/a", b"first", b"second")
    assert files.pread(fd, 100, 0) == b"firstsecond"
    assert files.pread(fd, 100, 50) == b""
    assert files.pwritev(fd, [b"12", memoryview(b"34")], 13) == 4
    assert files.pread(fd, 100, 10) == b"d\0\0" + b"1234"
    one, two = bytearray(3), bytearray(20)
    assert files.preadv(fd, [one, two], 5) == 12
    assert (bytes(one), bytes(two)) == (b"sec", b"ond\0\0" + b"1234" + bytes(11))
    files.ftruncate(fd, 4)
    assert (files.pread(fd, 100, 0), files.fstat(fd).st_size) == (b"firs", 4)
    files.ftruncate(fd, 6)
    assert files.pread(fd, 100, 0) == b"firs\0\0"
    for sync in (files.fdatasync, files.fsync, files.syncfs):
        sync(fd)
    files.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    files.close(fd)
    assert refused(lambda: files.pread(fd, 1, 0)) == errno.EBADF


def test_names(files: Files, place: str) -> None:
    files.makedirs(f"{place}/one/two")
    files.makedirs(f"{place}/one")
    fd = create(files, f"{place}/one/two/file", b"x")
    files.close(create(files, f"{place}/one/file"))
    assert sorted(files.listdir(f"{place}/one")) == ["file", "two"]
    assert files.list_directories(f"{place}/one") == ["two"]
    assert stat.S_ISDIR(files.stat(f"{place}/one").st_mode)
    assert not stat.S_ISDIR(files.stat(f"{place}/one/file").st_mode)
    files.utime(f"{place}/one/file", 5_000_000_000)
    assert files.stat(f"{place}/one/file").st_mtime_ns == 5_000_000_000
    files.rename(f"{place}/one/two", f"{place}/moved")
    files.rename(f"{place}/moved/file", f"{place}/one/file")
    assert (files.listdir(f"{place}/moved"), files.stat(f"{place}/one/file").st_size) == ([], 1)
    assert files.pread(fd, 9, 0) == b"x"
    files.unlink(f"{place}/one/file")
    assert files.pread(fd, 9, 0) == b"x", "who has it open reads on"
    files.close(fd)
    files.close(create(files, f"{place}/one/other"))
    files.remove_tree(f"{place}/one")
    files.remove_tree(f"{place}/one")
    assert files.listdir(place) == ["moved"]
    space = files.statvfs(place)
    assert 0 <= space.f_bavail <= space.f_blocks
    assert space.f_frsize > 0


def test_what_is_refused(files: Files, place: str) -> None:
    files.close(create(files, f"{place}/a"))
    missing = f"{place}/missing"
    for action in (
        lambda: files.open(missing, os.O_RDONLY),
        lambda: files.open(f"{missing}/file", NEW),
        lambda: files.stat(missing),
        lambda: files.listdir(missing),
        lambda: files.unlink(missing),
        lambda: files.rename(missing, f"{place}/b"),
        lambda: files.rename(f"{place}/a", f"{missing}/b"),
        lambda: files.utime(missing, 1),
        lambda: files.statvfs(missing),
    ):
        assert refused(action) == errno.ENOENT
    assert refused(lambda: files.open(f"{place}/a", NEW)) == errno.EEXIST
    assert refused(lambda: files.open(place, os.O_RDWR)) == errno.EISDIR
    assert refused(lambda: files.makedirs(f"{place}/a")) == errno.EEXIST
    assert refused(lambda: files.listdir(f"{place}/a")) == errno.ENOTDIR
    assert refused(lambda: files.unlink(place)) in (errno.EISDIR, errno.EPERM)


def test_a_lock_is_held_until_its_file_is_closed(files: Files, place: str) -> None:
    first = create(files, f"{place}/lock")
    second = files.open(f"{place}/lock", os.O_RDWR)
    files.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        files.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    files.close(first)
    files.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    files.close(second)


def test_truncated_when_opened(files: Files, place: str) -> None:
    files.close(create(files, f"{place}/a", b"old"))
    fd = files.open(f"{place}/a", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert files.fstat(fd).st_size == 0
    files.close(fd)


def outcomes(change: Callable[[MemoryFiles], None], look: Callable[[MemoryFiles], object]) -> set[object]:
    """What is seen after the power was lost, over many chances; the disk has a durable `/d/old` of two sectors."""
    found = set()
    for seed in range(200):
        files = MemoryFiles()
        files.makedirs("/d")
        fd = create(files, "/d/old", b"o" * SECTOR_BYTES * 2)
        files.syncfs(fd)
        files.close(fd)
        change(files)
        files.lose_power(random.Random(seed))
        found.add(look(files))
    return found


def content(files: MemoryFiles, path: str) -> bytes | None:
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    return files.pread(fd, 1_000_000, 0)


def test_what_was_not_synced_may_be_lost_or_torn() -> None:
    def overwrite(files: MemoryFiles) -> None:
        files.pwrite(files.open("/d/old", os.O_RDWR), b"n" * SECTOR_BYTES * 2, 0)

    old, new = b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES
    assert outcomes(overwrite, lambda files: content(files, "/d/old")) == {old + old, new + old, new + new}


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    def append_twice(files: MemoryFiles) -> None:
        fd = create(files, "/d/new")
        files.fsync(files.open("/d", os.O_RDONLY))
        files.pwrite(fd, b"a", 0)
        files.pwrite(fd, b"b", 1)

    assert outcomes(append_twice, lambda files: content(files, "/d/new")) == {b"", b"a", b"ab", b"\0b"}


def test_what_was_synced_stays() -> None:
    def write(files: MemoryFiles) -> None:
        fd = create(files, "/d/new", b"kept")
        files.fdatasync(fd)
        files.fsync(files.open("/d", os.O_RDONLY))
        files.pwrite(fd, b"lost", 0)
        files.fdatasync(fd)
        files.rename("/d/new", "/d/old")

    assert outcomes(write, lambda files: content(files, "/d/new")) == {b"lost", None}
    both = outcomes(write, lambda files: (content(files, "/d/new") is None, content(files, "/d/old")))
    assert {len(each[1]) for each in both if each[0]} == {4}, "a rename is there whole or not at all"  # type: ignore[index]


def test_names_are_there_in_the_order_in_which_they_came() -> None:
    def create_three(files: MemoryFiles) -> None:
        files.makedirs("/d/inner")
        create(files, "/d/inner/a")
        create(files, "/d/b")

    def names(files: MemoryFiles) -> tuple[str, ...]:
        inner = files.listdir("/d/inner") if "inner" in files.listdir("/d") else []
        return (*sorted(files.listdir("/d")), *inner)

    complete = {("inner", "old", "a"), ("b", "inner", "old", "a")}
    assert outcomes(create_three, names) == {("old",), ("inner", "old"), *complete}

    def sync_inner(files: MemoryFiles) -> None:
        create_three(files)
        files.fsync(files.open("/d/inner", os.O_RDONLY))

    assert outcomes(sync_inner, names) == complete


def test_a_disk_says_nothing_of_another() -> None:
    found = set()
    for seed in range(200):
        files = MemoryFiles(("/a", "/b"))
        for path in ("/a", "/b"):
            files.makedirs(f"{path}/log")
            files.close(create(files, f"{path}/log/1"))
        fd = files.open("/b/log", os.O_RDONLY)
        files.fsync(fd)
        files.close(create(files, "/b/log/2"))
        files.close(create(files, "/a/log/2"))
        files.lose_power(random.Random(seed))
        assert files.listdir("/") == ["a", "b"]
        found.add(tuple(path for path in ("/a/log/1", "/a/log/2", "/b/log/2") if files_has(files, path)))
        assert files.listdir("/b/log")[0] == "1"
    expected = [[], ["/a/log/1"], ["/a/log/1", "/a/log/2"]]
    assert found == {(*on_a, *on_b) for on_a in expected for on_b in ([], ["/b/log/2"])}


def test_a_file_stays_on_its_disk() -> None:
    files = MemoryFiles(("/a", "/b"))
    fd = create(files, "/a/one", bytes(10_000))
    other = create(files, "/b/one", b"x")
    assert refused(lambda: files.rename("/a/one", "/b/two")) == errno.EXDEV
    assert refused(lambda: files.rename("/a/one", "/two")) == errno.EXDEV
    assert files.statvfs("/a").f_bavail < files.statvfs("/b").f_bavail
    files.syncfs(fd)
    assert files.is_durable("/a/one")
    assert not files.is_durable("/b/one")
    files.close(other)
    files.lose_power(random.Random(1))
    assert content(files, "/a/one") == bytes(10_000)


def files_has(files: MemoryFiles, path: str) -> bool:
    return content(files, path) is not None


def test_descriptors_and_locks_end_with_the_power() -> None:
    files = MemoryFiles()
    fd = create(files, "/lock")
    files.syncfs(fd)
    files.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    files.lose_power(random.Random(1))
    assert refused(lambda: files.fstat(fd)) == errno.EBADF
    files.flock(files.open("/lock", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
