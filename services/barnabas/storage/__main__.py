"""Start one storage node: `python -m barnabas.storage --config FILE`."""

from __future__ import annotations

from barnabas.kernel.service import run_service
from barnabas.storage.config import StorageConfig
from barnabas.storage.service import serve

if __name__ == "__main__":
    run_service("storage", StorageConfig, serve)
