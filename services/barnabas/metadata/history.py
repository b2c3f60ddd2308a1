"""Whether one image continues another, or comes from a store with another history.

A store that was restored from a backup has the same cluster id and goes through the same revisions a second time, with
other facts. So each active controller begins a term with an id of its own at the revision after all that it found, and
the terms are part of the metadata: who was at some revision of some term belongs to a history only if that term is in
it and had not ended by that revision. A service that finds another history keeps its image, for it may hold data that
only its own history knows of; restarting the service is how an operator says that the other one is to count.
"""

from __future__ import annotations

from typing import Final

from barnabas.metadata.image import MetadataImage

TERMS_MAX: Final = 200
"""Terms that the metadata keep. Who followed an older one only, is judged by its revision alone."""


class HistoryRefused(Exception):
    """The metadata that were offered do not continue those that are known."""


def term_id(image: MetadataImage) -> str:
    """The latest term of the image; empty when it has none."""
    return image.terms[-1].term_id if image.terms else ""


def check_continues(image: MetadataImage, known_revision: int, known_term_id: str) -> None:
    """Raise HistoryRefused unless `image` continues what was known at that revision of that term (0: nothing)."""
    if not known_revision:
        return
    if image.revision < known_revision:
        raise HistoryRefused(
            f"the metadata are at revision {image.revision}, but revision {known_revision} is known already: "
            "they were restored from a backup, or are of an older store"
        )
    if not known_term_id:
        return
    ids = [term.term_id for term in image.terms]
    if known_term_id not in ids:
        if len(ids) >= TERMS_MAX and image.terms[0].first_revision > known_revision:
            return
        raise HistoryRefused(
            f"the metadata do not know the term {known_term_id} of revision {known_revision}: they are another store's"
        )
    following = image.terms[ids.index(known_term_id) + 1 :]
    if following and following[0].first_revision <= known_revision:
        raise HistoryRefused(
            f"the metadata went another way after revision {following[0].first_revision - 1}, but revision "
            f"{known_revision} is known already: they were restored from a backup"
        )
