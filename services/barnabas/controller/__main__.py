"""`python -m barnabas.controller --config FILE`: one controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.controller.config import ControllerConfig
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network


def load() -> tuple[type[ControllerConfig], Serve[ControllerConfig], Network]:
    """The service's own code, imported once the process is prepared for it."""
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.service import serve
    from barnabas.rpc.network import GrpcNetwork

    return ControllerConfig, serve, GrpcNetwork()


if __name__ == "__main__":
    run_service("controller", load)
