"""A store that was restored from a backup: nobody who knows more follows it before an operator says so."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from barnabas.controller.config import ControllerConfig
from barnabas.controller.service import running_controller
from barnabas.controller.store.sqlite import SqliteStore
from barnabas.kernel.service import system_environment
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.network import GrpcNetwork

WAIT_SECONDS_MAX = 20.0


@asynccontextmanager
async def controller(directory: Path) -> AsyncIterator[None]:
    """The controller of `directory`, in a process that knows nothing of those before."""
    config = ControllerConfig(listen_address=f"unix:{directory}/c.sock", data_dir=str(directory))
    environment = system_environment(network=GrpcNetwork())
    store = SqliteStore(config.metadata_file, environment.threads)
    await store.open()
    try:
        async with running_controller(config, store, environment):
            yield
    finally:
        await store.close()


@asynccontextmanager
async def following(directory: Path) -> AsyncIterator[MetadataSubscription]:
    subscription = MetadataSubscription(GrpcNetwork(), [f"unix:{directory}/c.sock"], pb.WatchRequest)
    task = asyncio.create_task(subscription.run())
    try:
        yield subscription
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(subscription: MetadataSubscription, holds: Callable[[MetadataImage], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscription.wait_until(lambda image: subscription.is_current and holds(image))


async def store_something(subscription: MetadataSubscription, user: str) -> None:
    await until(subscription, lambda image: bool(image.cluster_id))
    change = pb.ClientQuotaChange(
        entity=[md.QuotaEntityPart(type="user", name=user)],
        operations=[pb.ClientQuotaOperation(key="producer_byte_rate", value=5.0)],
    )
    request = pb.AlterClientQuotasRequest(entries=[change])
    await subscription.controller.AlterClientQuotas(request)
    await until(subscription, lambda image: user in users(image))


def users(image: MetadataImage) -> list[str | None]:
    return [name for entity in image.client_quotas for _, name in entity]


def take_away(directory: Path) -> None:
    for path in directory.glob("metadata*"):
        path.unlink()


async def test_a_restored_backup_is_followed_only_after_a_restart(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    async with following(tmp_path) as knows_more:
        async with controller(tmp_path):
            await store_something(knows_more, "old")
        for path in tmp_path.glob("metadata*"):
            shutil.copy(path, backup)
        async with controller(tmp_path):
            await store_something(knows_more, "new")
        take_away(tmp_path)
        for path in backup.iterdir():
            shutil.copy(path, tmp_path)
        async with controller(tmp_path), following(tmp_path) as restarted:
            await until(restarted, lambda image: "old" in users(image))
            for number in range(8):  # well past the revision that the other one knows
                await store_something(restarted, f"since-{number}")
            assert "new" not in users(restarted.image)
            assert restarted.image.revision > knows_more.image.revision
            refusals = knows_more.refusals
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while knows_more.refusals < refusals + 2:
                    await asyncio.sleep(0.01)
            assert not knows_more.is_current
            assert users(knows_more.image) == ["old", "new"]


async def test_an_emptied_store_is_refused_by_who_has_followed_and_ends_nobody(tmp_path: Path) -> None:
    async with following(tmp_path) as subscription:
        async with controller(tmp_path):
            await store_something(subscription, "kept")
        take_away(tmp_path)
        async with controller(tmp_path):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not subscription.refusals:
                    await asyncio.sleep(0.01)
            assert users(subscription.image) == ["kept"]
            assert not subscription.is_current
