"""What gRPC is told before it is loaded: it must know the names, or nothing of it comes true and nobody hears of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from barnabas.kernel.service import GRPC_EXPERIMENTS

OPEN_A_CHANNEL = "import grpc; grpc.insecure_channel('unix:/nobody').close()"


def test_grpc_knows_each_experiment_that_it_is_to_do_without() -> None:
    told = {"GRPC_EXPERIMENTS": f"{GRPC_EXPERIMENTS},-barnabas", "GRPC_VERBOSITY": "ERROR"}
    command = [sys.executable, "-c", OPEN_A_CHANNEL]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, timeout=60, check=True
    )
    assert re.findall(r"Unknown experiment: (\S+)", done.stderr) == ["barnabas"]


def test_a_service_tells_it_before_it_is_loaded() -> None:
    code = "from barnabas.kernel.service import prepare_imports; prepare_imports(); import os, sys; "
    code += "print('grpc' in sys.modules, os.environ['GRPC_EXPERIMENTS'])"
    unset = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=unset, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", GRPC_EXPERIMENTS]
