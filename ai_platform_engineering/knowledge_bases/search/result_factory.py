"""Search results from the hits of a store."""

from ai_platform_engineering.knowledge_bases.documents import Chunk, Document
from ai_platform_engineering.knowledge_bases.results import Explanation, SearchResult
from ai_platform_engineering.knowledge_bases.search.exact_terms import find_exact_terms, find_held_terms
from ai_platform_engineering.knowledge_bases.search.snippets import extract_snippet, find_shared_words
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Hit


def create_result(hit: Hit, document: Document, query: str, *, explain: bool = False) -> SearchResult:
    """The result of a hit: the best chunk of its document, and where others are. `explain`: with the reasons
    why it was found."""
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
        explanation=_explain(hit, document, chunk, query) if explain else None,
    )


def _explain(hit: Hit, document: Document, chunk: Chunk, query: str) -> Explanation:
    searched_text = " \n".join((document.title, *chunk.headings, chunk.text))
    held_terms = find_held_terms(find_exact_terms(query), searched_text)
    return Explanation(
        words=find_shared_words(searched_text, query),
        exact=tuple(term.text for term in held_terms),
        word_score=hit.word_score,
        meaning_score=hit.meaning_score,
    )
