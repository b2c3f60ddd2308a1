"""Start one coordinator: `python -m barnabas.coordinator --config FILE`."""

from __future__ import annotations

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.service import serve
from barnabas.kernel.service import run_service

if __name__ == "__main__":
    run_service("coordinator", CoordinatorConfig, serve)
