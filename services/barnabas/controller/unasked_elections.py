"""Elections that nobody asks for: leadership goes back to preferred leaders, or to whoever is there if that is allowed.

What happens to nodes is answered at once (`core/nodes.py`). This is for what is due without that: a preferred leader
that is in sync again, a setting that allows unclean elections by now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from barnabas.controller.core.decision import Decision
from barnabas.controller.limits import ELECTIONS_PER_RUN_MAX
from barnabas.controller.writer import MetadataWriter, TooManyRequests
from barnabas.kernel.clock import Clock
from barnabas.kernel.logs import get_logger
from barnabas.metadata.image import MetadataImage

Elect = Callable[[MetadataImage, int], Decision[bool]]
"""At most so many elections; the answer is whether there may be more."""

log: Final = get_logger("controller.unasked_elections")


async def elect_every(seconds: float, elect: Elect, writer: MetadataWriter, clock: Clock) -> NoReturn:
    """Elect from time to time, until cancelled. Raises LeadershipLost."""
    while True:
        await clock.sleep(seconds)
        try:
            while await _elect_some(elect, writer):
                pass
        except TooManyRequests as error:
            log.info("elections are put off", reason=str(error))


async def _elect_some(elect: Elect, writer: MetadataWriter) -> bool:
    """One run; whether another one is due at once. Where nothing is due, the store is not troubled."""
    if not elect(writer.image, ELECTIONS_PER_RUN_MAX).records:
        return False
    return await writer.submit(lambda image: elect(image, ELECTIONS_PER_RUN_MAX))
