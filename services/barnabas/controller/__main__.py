"""Start one controller: `python -m barnabas.controller --config FILE`."""

from __future__ import annotations

from barnabas.controller.config import ControllerConfig
from barnabas.controller.service import serve
from barnabas.kernel.service import run_service

if __name__ == "__main__":
    run_service("controller", ControllerConfig, serve)
