"""`python -m barnabas.gateway`: one gateway process."""

from __future__ import annotations

from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.service import serve
from barnabas.kernel.service import run_service

if __name__ == "__main__":
    run_service("gateway", GatewayConfig, serve)
