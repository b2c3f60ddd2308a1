"""What a service ends with when several of its parts fail."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.kernel.service import ServiceContext, StartError, _run
from barnabas.rpc.network import GrpcNetwork


async def run_with(*errors: Exception) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def serve(config: CoordinatorConfig, context: ServiceContext) -> None:
        del config, context
        async with asyncio.TaskGroup() as tasks:
            for error in errors:
                tasks.create_task(fail(error))

    await _run("storage", CoordinatorConfig(), serve, GrpcNetwork())


async def test_what_the_user_must_change_comes_alone() -> None:
    with pytest.raises(StartError, match="a port is taken"):
        await run_with(StartError("a port is taken"), StartError("another, too"))


async def test_a_fault_is_not_taken_for_what_the_user_must_change() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await run_with(StartError("a port is taken"), ValueError("a fault"))
    assert raised.value.subgroup(ValueError) is not None
