"""The controller as a real process: killed in the midst of its work, it comes back with all that it answered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.controller.config import SEGMENT_BYTES_MIN, ControllerConfig
from barnabas.kernel.config import ConfigError, to_properties
from barnabas.kernel.errors import KafkaError
from barnabas.links.controller_link import ControllerLink
from barnabas.links.errors import LinkError
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_settings import topic_setting
from barnabas.rpc.network import GrpcNetwork

Watching = AsyncGenerator[pb.MetadataDelta]
WAIT_SECONDS_MAX = 30.0


@asynccontextmanager
async def controller_process(config_file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "barnabas.controller",
        "--config",
        str(config_file),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def config_file(directory: Path, **changes: object) -> Path:
    settings: dict[str, object] = {
        "listen_address": f"unix:{directory}/c.sock",
        "data_dir": str(directory / "data"),
        "http_address": "",
    }
    path = directory / "controller.properties"
    path.write_text(to_properties(ControllerConfig(**(settings | changes))))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_killed_and_started_again_it_knows_all_it_answered(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    changes: dict[str, object] = {}
    if store == "etcd":
        endpoint = request.getfixturevalue("etcd_server").endpoint
        changes = {"data_dir": "", "etcd_endpoints": (endpoint,), "etcd_namespace": f"{tmp_path.name}/"}
    config = config_file(tmp_path, **changes)
    node = md.NodeRecord(node_id=1, incarnation_id="a", address="n1")
    answered: set[str] = set()
    link = GrpcNetwork().connect_controller(f"unix:{tmp_path}/c.sock")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        async with controller_process(config) as process:
            watch, _ = await registered(link, pb.WatchRequest(node=node))

            async def create_many() -> None:
                for number in range(10_000):
                    topic = pb.NewTopic(name=f"t{number}", partition_count=2, replication_factor=1)
                    response = await link.CreateTopics(pb.CreateTopicsRequest(topics=[topic]))
                    assert response.topics[0].result.error_code == 0
                    answered.add(topic.name)
                    if number == 25:
                        process.kill()

            with pytest.raises(LinkError):
                await create_many()
            await watch.aclose()
        async with controller_process(config):
            watch, image = await registered(link, pb.WatchRequest(node=node))
            assert answered <= set(image.topics)
            assert all(p.leader == 1 for t in image.topics.values() for p in t.partitions)
            await watch.aclose()
    await link.close()


async def registered(link: ControllerLink, request: pb.WatchRequest) -> tuple[Watching, MetadataImage]:
    """A stream that the active controller has accepted, and the image when its node is in it, not fenced."""
    while True:
        watch = link.Watch(request)
        try:
            await next_image(watch)  # a controller that is not active yet refuses here
            return watch, await image_with_node(link, request.node.node_id)
        except LinkError:
            await watch.aclose()
        await asyncio.sleep(0.02)


async def image_with_node(link: ControllerLink, node_id: int) -> MetadataImage:
    while True:
        observer = link.Watch(pb.WatchRequest())
        try:
            image = await next_image(observer)
        finally:
            await observer.aclose()
        if node_id in image.nodes and not image.nodes[node_id].fenced:
            return image
        await asyncio.sleep(0.02)


async def next_image(watch: Watching) -> MetadataImage:
    """The image of the stream's snapshot."""
    delta = await anext(watch)
    return MetadataImage().apply(delta.records, delta.revision)


async def test_a_store_that_cannot_be_used_is_one_line_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metadata.db").write_bytes(b"not a database, not at all" * 50)
    async with asyncio.timeout(WAIT_SECONDS_MAX), controller_process(config_file(tmp_path)) as process:
        _, errors = await process.communicate()
    assert process.returncode == 78
    lines = errors.decode().splitlines()
    assert len(lines) == 1, errors.decode()
    assert "metadata.db is damaged" in lines[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_dir": ""}, "both empty"),
        ({"etcd_endpoints": ("https://a:1",)}, "TLS to etcd"),
        ({"num_partitions": 0}, "num.partitions=0"),
        ({"default_replication_factor": 0}, "default.replication.factor=0: must be at least 1"),
        ({"election_lease_ms": 10}, "election.lease.ms=10"),
        (
            {"offsets_topic_segment_bytes": SEGMENT_BYTES_MIN - 1},
            "offsets.topic.segment.bytes=1048575: must be at least 1048576",
        ),
        ({"transaction_state_log_segment_bytes": 1}, "transaction.state.log.segment.bytes=1: must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ControllerConfig(**({"data_dir": "d"} | changes))  # type: ignore[arg-type]


def test_internal_topics_ask_for_segments_that_nodes_take() -> None:
    least = topic_setting("segment.bytes")
    assert least.parse(str(SEGMENT_BYTES_MIN)) == SEGMENT_BYTES_MIN
    with pytest.raises(KafkaError):
        least.parse(str(SEGMENT_BYTES_MIN - 1))
