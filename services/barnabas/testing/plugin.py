"""The pytest plugin: pytest loads it by itself where Barnabas is installed. docs/testing.md is its guide.

Every session of every project that has Barnabas installed imports this module, so it imports nothing but pytest;
the cluster's code comes with the first fixture that is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.topic import Topic

ClusterFactory = Callable[..., "Cluster"]

_KEPT = pytest.StashKey[list[str]]()
"""Data directories that are kept, for the end of the report."""

_SHARED = pytest.StashKey["list[Cluster]"]()
"""The session's cluster, once there is one."""

_LOG_BEFORE = pytest.StashKey[int]()
"""How much the session's cluster had logged when the test began."""

_SETTINGS = (
    # flag and ini option, its default, what it says
    ("nodes", 1, "storage nodes (Kafka's brokers) of the shared cluster"),
    ("gateways", 1, "gateway processes of the shared cluster"),
    ("log-level", "warning", "the least level of the clusters' logs: debug, info, warning or error"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("barnabas", "a Kafka-compatible cluster for tests")
    for name, default, text in _SETTINGS:
        group.addoption(f"--barnabas-{name}", type=type(default), default=None, help=f"{text} ({default})")
        parser.addini(
            f"barnabas_{name.replace('-', '_')}", f"{text}; --barnabas-{name} wins", default=str(default)
        )
    group.addoption(
        "--barnabas-keep-data",
        action="store_true",
        help="keep the clusters' data and logs, and say at the end where they are",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "barnabas_topic(name='', partitions=1, config=None): what the topic of the fixture `barnabas_topic` is like",
    )
    config.stash[_KEPT] = []
    config.stash[_SHARED] = []


@pytest.fixture(scope="session")
def barnabas_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster for the whole session (under xdist: of the worker), a `barnabas.testing.Cluster`.

    What a test does to it (faults, services that are paused or down) is taken back after the test.
    """
    from barnabas.testing.cluster import Cluster

    cluster = Cluster(
        nodes=int(_setting(pytestconfig, "nodes")),
        gateways=int(_setting(pytestconfig, "gateways")),
        log_level=_setting(pytestconfig, "log-level"),
        keep_data=pytestconfig.getoption("--barnabas-keep-data"),
    )
    with _closing(cluster, pytestconfig):
        pytestconfig.stash[_SHARED].append(cluster)
        try:
            yield cluster
        finally:
            pytestconfig.stash[_SHARED].clear()


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, barnabas_cluster: Cluster) -> Iterator[Topic]:
    """A topic for this test alone: a `barnabas.testing.Topic`, which is also its name as text.

    `@pytest.mark.barnabas_topic(partitions=3, config={"cleanup.policy": "compact"})` says what it is to be like.
    """
    marker = request.node.get_closest_marker("barnabas_topic")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    with barnabas_cluster.temporary_topic(**{"prefix": request.node.name, **options}) as topic:
        yield topic


@pytest.fixture
def barnabas_cluster_factory(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> Iterator[ClusterFactory]:
    """`barnabas_cluster_factory(nodes=3)`: started clusters for this test alone, with the arguments of `Cluster`."""
    from barnabas.testing.cluster import Cluster

    made: list[Cluster] = []
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            defaults = {
                "log_level": _setting(pytestconfig, "log-level"),
                "keep_data": pytestconfig.getoption("--barnabas-keep-data"),
            }
            cluster = Cluster(**{**defaults, **options})
            made.append(cluster)
            stack.enter_context(_closing(cluster, pytestconfig))
            return cluster

        make.made = made  # type: ignore[attr-defined]  # for the report of a test that fails
        yield make


@contextlib.contextmanager
def _closing(cluster: Cluster, config: pytest.Config) -> Iterator[None]:
    """Start `cluster` at the beginning of the context, and close it at the end or when it cannot start."""
    try:
        cluster.start()
        yield
    finally:
        if cluster.keep_data:
            config.stash[_KEPT].append(str(cluster.data_dir))
        cluster.close()


def _setting(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"--barnabas-{name}")
    return str(config.getini(f"barnabas_{name.replace('-', '_')}") if given is None else given)


# --- around each test: what a cluster logged is shown where the test failed, and harm is taken back


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    shared = item.config.stash[_SHARED]
    item.stash[_LOG_BEFORE] = shared[0].log_size() if shared else 0
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    failure = None
    for cluster in item.config.stash[_SHARED]:
        if cluster.harmed:
            try:
                cluster.heal()
            except AssertionError as error:
                failure = error  # the fixtures still have to be torn down
    result = yield
    if failure is not None:
        raise failure
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        logs = [(own, own.log()) for own in getattr(arguments.get("barnabas_cluster_factory"), "made", ())]
        if {"barnabas_cluster", "barnabas_topic"} & set(getattr(item, "fixturenames", ())):
            logs += [(shared, shared.log(item.stash[_LOG_BEFORE])) for shared in item.config.stash[_SHARED]]
        for cluster, log in logs:
            report.sections.append((f"log of the cluster at {cluster.bootstrap_servers}", log or "(nothing)"))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for path in config.stash[_KEPT]:
        terminalreporter.write_line(f"barnabas: the cluster's data and log are kept in {path}")
