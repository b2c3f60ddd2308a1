"""`python -m barnabas.storage --config FILE`: one storage node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kernel.service import run_service

if TYPE_CHECKING:
    from barnabas.kernel.service import Serve
    from barnabas.links.network import Network
    from barnabas.storage.config import StorageConfig


def load() -> tuple[type[StorageConfig], Serve[StorageConfig], Network]:
    """The service's own code, imported once the process is prepared for it."""
    from barnabas.kernel.allocator import keep_freed_memory
    from barnabas.rpc.network import GrpcNetwork
    from barnabas.storage.config import StorageConfig
    from barnabas.storage.service import serve

    keep_freed_memory()
    return StorageConfig, serve, GrpcNetwork()


if __name__ == "__main__":
    run_service("storage", load)
