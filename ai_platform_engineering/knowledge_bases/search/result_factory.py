"""Search results from the hits of a store."""

from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.results import SearchResult
from ai_platform_engineering.knowledge_bases.search.snippets import extract_snippet
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit


def create_result(hit: Hit, document: Document, query: str) -> SearchResult:
    """The result of a hit: the best chunk of its document, and where others are."""
    chunks = {chunk.ordinal: chunk for chunk in document.chunks}
    chunk = chunks.get(hit.ordinal)
    if chunk is None:  # the document was read again since the search: the whole of it stands for the chunk
        chunk = Chunk(hit.ordinal, document.text)
    return SearchResult(
        document_id=document.document_id,
        title=document.title,
        link=document.link,
        datasource=document.datasource,
        score=hit.score,
        snippet=extract_snippet(chunk.text, query),
        headings=chunk.headings,
        offset=chunk.start,
        kind=document.kind,
        more_offsets=tuple(chunks[ordinal].start for ordinal in hit.other_ordinals if ordinal in chunks),
        metadata=document.metadata,
    )
