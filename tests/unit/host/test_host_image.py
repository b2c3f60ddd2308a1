"""The image of brokers has what a broker hosts."""

from __future__ import annotations

import runpy
from pathlib import Path

from barnabas.host.__main__ import HOSTED

TRIM = Path(__file__).parents[3] / "docker" / "trim.py"


def test_the_image_keeps_the_services_that_a_broker_imports() -> None:
    assert runpy.run_path(str(TRIM))["HOSTED"]["broker"] == {"host", *HOSTED}
