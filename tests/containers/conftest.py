"""An engine, our images, and the compose project that the tests of this folder share.

They run by `make containers`, or by naming this folder: they need an engine, some minutes, and the machine's network.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from compose_project import Project

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
"""For one test: the first also waits for an engine to be installed and every image to be made."""

# The parser of the collector's output, and what it stands on.
sys.path[:0] = [str(HERE.parent / name) for name in ("observability", "integration")]

# Its container that cleans up after tests is on no machine without a registry; these clean up themselves.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark that leaves the short form with one of each kind."""
    config.addinivalue_line("markers", "whole: not in the short form (`-m 'not whole'`), which CI runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder the time that it may need."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine with the images that the compose file names."""
    from compose_project import engine_environment

    os.environ.update(engine_environment("etcd", "redis", "prometheus", "collector"))


@pytest.fixture(scope="session")
def images(engine: None) -> str:
    """Our images, built from this tree; the lines with their sizes."""
    from compose_project import VERSION, build_images

    return build_images(VERSION)


@pytest.fixture(scope="session")
def running_project(images: str) -> Iterator[Project]:
    """The project, up; everything of it is gone afterwards."""
    from compose_project import LOGS, VERSION, Project

    shutil.rmtree(LOGS, ignore_errors=True)
    project = Project(VERSION)
    try:
        project.start()
        yield project
    finally:
        project.stop()


@pytest.fixture
def project(running_project: Project) -> Project:
    """The shared project, ready: what an earlier test did to it is over."""
    from compose_project import SERVICES

    running_project.wait_ready(*SERVICES)
    return running_project
