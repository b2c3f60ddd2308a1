"""`python -m barnabas.coordinator --config FILE`: one coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.coordinator.config import CoordinatorConfig
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network


def load() -> tuple[type[CoordinatorConfig], Serve[CoordinatorConfig], Network]:
    """The service's own code, imported once the process is prepared for it."""
    from barnabas.coordinator.config import CoordinatorConfig
    from barnabas.coordinator.service import serve
    from barnabas.rpc.network import GrpcNetwork

    return CoordinatorConfig, serve, GrpcNetwork()


if __name__ == "__main__":
    run_service("coordinator", load)
