"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Processor, cores, memory, kernel and the versions of what runs on them."""
    processor = _field("/proc/cpuinfo", "model name") or platform.machine()
    memory_gb = int((_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 2**20
    return {
        "processor": processor,
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gb:.0f} GB",
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "java": _java(),
        "librdkafka": _librdkafka(),
    }


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _java() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "none"
    return done.stderr.split('"')[1] if '"' in done.stderr else "unknown"


def _librdkafka() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])
