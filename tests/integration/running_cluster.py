"""The cluster of `barnabas.testing` as integration tests use it: its HTTP endpoints are up once it has started."""

from __future__ import annotations

import shutil
from typing import Self

from barnabas import testing
from barnabas.testing.ports import free_ports
from barnabas.testing.process import Service

__all__ = ["Cluster", "Service", "free_ports", "require_program"]


class Cluster(testing.Cluster):
    """A cluster whose `/readyz` and `/metrics` know every service when `start` returns."""

    def start(self) -> Self:
        super().start()
        self.wait_ready()
        return self


def require_program(name: str) -> str:
    """The path of an outside program; without it the test fails, because a test that is not run proves nothing."""
    path = shutil.which(name)
    assert path, f"{name} is missing: `make test` installs it, or says which package has it"
    return path
