"""The environment of a service: the same seed, the same run; two services, two of everything."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.service import system_environment


def test_the_same_seed_gives_the_same_ids_and_chance() -> None:
    def drawn(seed: int) -> list[object]:
        environment = seeded_environment(seed)
        return [environment.new_id(), environment.random.random(), environment.new_id()]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert seeded_environment().new_id().version == 4


def test_each_has_a_registry_of_its_own() -> None:
    first, second = system_environment(), system_environment()
    assert first.registry is first.registry
    assert first.registry is not second.registry


async def test_seeded_threads_are_none() -> None:
    environment, here = seeded_environment(), threading.get_ident()
    executor = environment.threads.executor("disk", 4)
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(executor, threading.get_ident) == here
    assert await environment.threads.run(threading.get_ident) == here
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(executor, lambda: 1 // 0)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        executor.submit(threading.get_ident)


async def test_real_threads_are_others_and_named() -> None:
    threads, here = system_environment().threads, threading.get_ident()
    with threads.executor("disk", 1) as executor:
        name = await asyncio.get_running_loop().run_in_executor(
            executor, lambda: threading.current_thread().name
        )
    assert name.startswith("disk")
    assert await threads.run(threading.get_ident) != here
