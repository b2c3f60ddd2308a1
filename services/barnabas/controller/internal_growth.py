"""Internal topics get the replicas that they lack as storage nodes join (`core/internal_topics.py` decides which)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, NoReturn

from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.internal_topics import Growth, grow_internal_topics
from barnabas.controller.limits import INTERNAL_PARTITIONS_GROWING_MAX, INTERNAL_TOPICS_CHECK_SECONDS
from barnabas.controller.writer import MetadataWriter, TooManyRequests
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.metadata.image import MetadataImage

log: Final = get_logger("controller.internal_growth")


async def grow_when_nodes_join(writer: MetadataWriter, defaults: ClusterDefaults) -> NoReturn:
    """Look from time to time, until cancelled. Raises LeadershipLost."""

    def decide(image: MetadataImage) -> Decision[Growth]:
        return grow_internal_topics(image, defaults, INTERNAL_PARTITIONS_GROWING_MAX)

    lines = RareLines(log, asyncio.get_running_loop().time)
    seen: MetadataImage | None = None
    while True:
        await asyncio.sleep(INTERNAL_TOPICS_CHECK_SECONDS)
        if writer.image is seen:
            continue
        seen = writer.image
        due = decide(seen)
        for wish, reason in due.response.refused:
            lines.warning(
                "an internal topic cannot get further replicas",
                about=wish.topic,
                topic=wish.topic,
                partition=wish.partition,
                replicas=list(wish.replicas),
                reason=reason,
            )
        # Where nothing is due, the store is not troubled.
        if not due.records:
            continue
        try:
            growth = await writer.submit(decide)
        except TooManyRequests as error:
            log.info("internal topics grow later", reason=str(error))
            seen = None
            continue
        for topic, count in Counter(each.topic for each in growth.begun).items():
            nodes = sorted({node for each in growth.begun if each.topic == topic for node in each.replicas})
            log.info("an internal topic gets further replicas", topic=topic, partitions=count, nodes=nodes)
        for topic, count in Counter(each.topic for each in growth.given_up).items():
            log.info(
                "replicas of an internal topic are not waited for any more", topic=topic, partitions=count
            )
