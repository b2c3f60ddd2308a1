"""The allocator is told once, and its absence is no fault."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import pytest

from barnabas.kernel import allocator


def test_thresholds_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[int, int] = {}

    def mallopt(parameter: int, value: int) -> int:
        calls[parameter] = value
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    allocator.keep_freed_memory()
    assert calls == {-3: allocator.KEPT_BLOCK_BYTES_MAX, -1: allocator.KEPT_BYTES_MAX}


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    allocator.keep_freed_memory()


def test_what_is_built_while_collection_is_put_off_is_walked_over_neither_then_nor_later() -> None:
    assert gc.isenabled()
    try:
        with allocator.collection_put_off():
            assert not gc.isenabled()
            built: list[list[int]] = [[] for _ in range(100)]
        assert gc.isenabled()
        assert not any(each is built for each in gc.get_objects())
    finally:
        gc.unfreeze()


def test_collection_is_put_off_no_longer_when_the_work_fails() -> None:
    try:
        with pytest.raises(OSError, match="disk"), allocator.collection_put_off():
            raise OSError("disk")
        assert gc.isenabled()
    finally:
        gc.unfreeze()
