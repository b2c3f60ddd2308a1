"""`python -m barnabas.gateway --config FILE`: one gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.gateway.config import GatewayConfig
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network


def load() -> tuple[type[GatewayConfig], Serve[GatewayConfig], Network]:
    """The service's own code, imported once the process is prepared for it."""
    from barnabas.gateway.config import GatewayConfig
    from barnabas.gateway.service import serve
    from barnabas.kernel.allocator import keep_freed_memory
    from barnabas.rpc.network import GrpcNetwork

    keep_freed_memory()
    return GatewayConfig, serve, GrpcNetwork()


if __name__ == "__main__":
    run_service("gateway", load)
