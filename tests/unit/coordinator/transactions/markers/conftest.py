"""A log, and the pace at which things are tried again."""

from __future__ import annotations

import pytest
from transaction_node import NEVER_MS


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried at once."""
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MIN", 0)
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MAX", 0)


@pytest.fixture
def _never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again by time alone."""
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MIN", NEVER_MS)
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MAX", NEVER_MS)


@pytest.fixture(autouse=True)
def _log_retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOAD_RETRY_MS_MIN", "APPEND_RETRY_MS_MIN", "APPEND_RETRY_MS_MAX"):
        monkeypatch.setattr(f"barnabas.coordinator.limits.{name}", 0)
