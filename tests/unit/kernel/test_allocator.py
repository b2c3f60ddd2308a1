"""The allocator is told once, and its absence is no fault."""

from __future__ import annotations

import ctypes
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
