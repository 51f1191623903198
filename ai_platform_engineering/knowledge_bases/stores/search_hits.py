"""What the searches of both stores share: the names of filters, and the hits for ranked chunks."""

from collections.abc import Mapping, Sequence

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.search.score_fusion import FusedDocument
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit

ChunkLocations = Mapping[int, tuple[str, int]]  # the document and the ordinal of each chunk, by its number

_FILTERS = frozenset({"kind", "title", "path"})


def check_filters(filters: Mapping[str, str]) -> None:
    """Raises Refused for a filter that does not exist."""
    for name in filters:
        if name not in _FILTERS:
            raise Refused(
                f"There is no filter {name!r}. Use kind, title (a part of it) or path (how the address "
                "begins)."
            )


def list_chunks(documents: Sequence[FusedDocument]) -> list[int]:
    """The numbers of all chunks whose locations the hits need."""
    chunks: list[int] = []
    for document in documents:
        chunks += (document.chunk, *document.others)
    return chunks


def create_hits(documents: Sequence[FusedDocument], locations: ChunkLocations) -> list[Hit]:
    """The hits for documents; those that were deleted meanwhile have no location and are left out."""
    hits: list[Hit] = []
    for document in documents:
        if document.chunk in locations:
            document_id, ordinal = locations[document.chunk]
            others = tuple(locations[chunk][1] for chunk in document.others if chunk in locations)
            shares = document.shares
            hits.append(
                Hit(document_id, ordinal, document.score, others, shares.get("words"), shares.get("meaning"))
            )
    return hits
