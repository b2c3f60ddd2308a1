"""`python -m barnabas.host --config FILE`: a broker, which is several services in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.host.config import BrokerConfig
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network

HOSTED: Final = ("gateway", "storage", "coordinator")


def load() -> tuple[type[BrokerConfig], Serve[BrokerConfig], Network]:
    """The services' own code, imported once the process is prepared for it."""
    from barnabas.host.config import BrokerConfig
    from barnabas.host.service import serve
    from barnabas.kernel.allocator import keep_freed_memory
    from barnabas.rpc.network import GrpcNetwork

    keep_freed_memory()
    return BrokerConfig, serve, GrpcNetwork()


if __name__ == "__main__":
    run_service("broker", load, HOSTED)
