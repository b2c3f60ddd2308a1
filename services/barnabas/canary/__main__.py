"""`python -m barnabas.canary --config FILE`: the cluster as its clients see it, measured all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.canary.config import CanaryConfig
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network


def load() -> tuple[type[CanaryConfig], Serve[CanaryConfig], Network]:
    """The service's own code, imported once the process is prepared for it."""
    from barnabas.canary.config import CanaryConfig
    from barnabas.canary.service import serve
    from barnabas.kernel.environment import no_network

    return CanaryConfig, serve, no_network()


if __name__ == "__main__":
    run_service("canary", load)
