"""A real Kafka-compatible cluster for tests: pytest fixtures (see `plugin`), or `with Cluster() as cluster:`.

Nothing is imported until it is used: pytest loads this package in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.failures import ClusterFailed, TimedOut
    from barnabas.testing.fault import Fault
    from barnabas.testing.process import Service
    from barnabas.testing.record import Record
    from barnabas.testing.topic import Topic

__all__ = ["Cluster", "ClusterFailed", "Fault", "Record", "Service", "TimedOut", "Topic"]

_MODULES = {
    "Cluster": "cluster",
    "ClusterFailed": "failures",
    "Fault": "fault",
    "Record": "record",
    "Service": "process",
    "TimedOut": "failures",
    "Topic": "topic",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
