"""What a service has imported by the time that it serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

START: Final = """
import sys
from barnabas.kernel.service import run_service

def load():
    from barnabas.coordinator.config import CoordinatorConfig
    from barnabas.rpc.network import GrpcNetwork
    return CoordinatorConfig, serve, GrpcNetwork()

async def serve(config, context):
    print("barnabas.kernel.http" in sys.modules, "barnabas.kernel.metrics_page" in sys.modules)

run_service("coordinator", load)
"""


def test_what_it_answers_http_with_is_imported_before_it_serves(tmp_path: Path) -> None:
    """Later its event loop would stand still for it, when clients wait for it, and leaders for an in-sync replica."""
    command = [sys.executable, "-c", START]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "True True\n"
