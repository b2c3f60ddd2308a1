"""The canary's process: three loops beside one another, until it is told to stop."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaException

from barnabas.canary import limits
from barnabas.canary.config import CanaryConfig
from barnabas.canary.metrics import CanaryMetrics
from barnabas.canary.probing import Probing, wait_for
from barnabas.kernel.service import ServiceContext, StartError


async def serve(config: CanaryConfig, context: ServiceContext) -> None:
    """Measure until `context.stopping`. Raises StartError for settings that the client library refuses."""
    environment = context.environment
    metrics = CanaryMetrics(environment.registry)
    probing = Probing(config, environment.clock, str(environment.new_id()), metrics)
    context.health.add_condition("the topic is there", lambda: probing.is_started)
    try:
        if await _started(probing, context):
            async with asyncio.TaskGroup() as tasks:
                loops = [
                    tasks.create_task(_send(probing, config, context), name="send"),
                    tasks.create_task(_sweep(probing, context), name="sweep"),
                    tasks.create_task(_follow(probing, config, context), name="follow"),
                ]
                await context.stopping.wait()
                # A sweep may be waiting for a cluster that does not answer.
                for loop in loops:
                    loop.cancel()
    finally:
        await probing.close()


async def _started(probing: Probing, context: ServiceContext) -> bool:
    """Whether probing began before the process was told to stop."""
    starting = asyncio.create_task(probing.start(), name="start")
    stopped = asyncio.create_task(context.stopping.wait(), name="stopped")
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
        return starting.done()
    except KafkaException as error:
        raise StartError(f"the client library refuses its settings: {error.args[0]}") from error
    finally:
        starting.cancel()
        stopped.cancel()
        await asyncio.gather(starting, stopped, return_exceptions=True)


async def _send(probing: Probing, config: CanaryConfig, context: ServiceContext) -> None:
    """A record a gateway every interval, by the clock: a turn that was late does not delay the next."""
    interval = config.interval_ms / 1000
    clock, due = context.environment.clock, context.environment.clock.monotonic()
    while not context.stopping.is_set():
        probing.send_round()
        due = max(due + interval, clock.monotonic())
        await wait_for(context.stopping, due - clock.monotonic())


async def _sweep(probing: Probing, context: ServiceContext) -> None:
    while not context.stopping.is_set():
        await probing.sweep()
        await wait_for(context.stopping, limits.SWEEP_SECONDS)


async def _follow(probing: Probing, config: CanaryConfig, context: ServiceContext) -> None:
    while not context.stopping.is_set():
        await wait_for(context.stopping, config.resolve_interval_ms / 1000)
        if not context.stopping.is_set():
            await probing.follow_gateways()
            await probing.follow_topic()
