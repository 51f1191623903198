"""The lexical index of the embedded store: tantivy, with words by their stem and identifiers as they are."""

import logging
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tantivy

from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.knowledge_bases.access import VisibleTo
from ai_platform_engineering.knowledge_bases.search.exact_terms import ExactTerm
from ai_platform_engineering.knowledge_bases.search.tokens import (
    extract_identifiers,
    parse_query,
    split_camel_case,
)
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_reads import LexicalEntry

log = logging.getLogger(__name__)

# Raised when fields or their analysis change: an index of another version is built again.
VERSION = 2
_WRITER_HEAP_BYTES = 64_000_000  # in memory before a segment is written
_FIELDS = (("body", 1.0), ("head", 0.5))  # head: title and headings, which body holds as well
_IDENTIFIER_WEIGHT = 1.0
_EVERYBODY = "everybody"
_NAME_PREFIX = "name:"  # so that no name is `everybody`


class LexicalIndex:
    """A lexical index of chunks in a folder. Only a writer may add, delete and commit; a reader sees commits
    after `reload`."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        create_private_folder(folder)
        self._word_analyzer = _create_word_analyzer()
        self._index = tantivy.Index(_create_schema(), str(folder))
        self._index.register_tokenizer("words", self._word_analyzer)
        self._index.register_tokenizer("names", _create_identifier_analyzer())
        self._index.config_reader("manual")
        self._writer: Any = None
        if writes:
            # One thread: documents keep their order, and memory its limit.
            self._writer = self._index.writer(_WRITER_HEAP_BYTES, 1)

    @property
    def size(self) -> int:
        """The number of chunks that a search sees."""
        return int(self._index.searcher().num_docs)

    def add(self, entries: Iterable[LexicalEntry]) -> None:
        for entry in entries:
            # Each heading once: a title is often the first heading as well.
            head = "\n".join(dict.fromkeys((entry.title, *entry.headings)))
            body = f"{head}\n{entry.text}"
            document = tantivy.Document()
            document.add_unsigned("chunk", entry.chunk)
            document.add_unsigned("document", entry.document)
            document.add_text("datasource", entry.datasource)
            for token in _list_viewer_tokens(entry.visible_to):
                document.add_text("viewer", token)
            document.add_text("head", head)
            document.add_text("body", f"{body}\n{split_camel_case(body)}")
            document.add_text("names", extract_identifiers(body))
            self._writing.add_document(document)

    def delete(self, documents: Sequence[int]) -> None:
        """Deletes the chunks of documents, by the documents' numbers."""
        if documents:
            # `delete_documents_by_term` takes the number for a signed one, and deletes nothing.
            query = tantivy.Query.term_set_query(self._index.schema, "document", documents)
            self._writing.delete_documents_by_query(query)

    def commit(self) -> None:
        self._writing.commit()
        self._index.reload()

    def rollback(self) -> None:
        self._writing.rollback()

    def reload(self) -> None:
        self._index.reload()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def search(
        self,
        query: str,
        limit: int,
        *,
        datasources: Iterable[str] = (),
        documents: Sequence[int] | None = None,
        exact: ExactTerm | None = None,
        viewer_names: Sequence[str] | None = None,
        hidden_datasources: Sequence[str] = (),
    ) -> list[tuple[int, float]]:
        """The numbers of the best chunks, with their scores. `datasources`, `documents` and `exact`: only
        chunks of these, and only those with the term. `viewer_names`: only what everybody or one of these may
        see; None asks for nothing."""
        terms = self._build_term_queries(query)
        if not terms or (documents is not None and not documents):
            return []
        schema = self._index.schema
        conditions = [_any_of(terms)]
        if exact is not None:
            conditions.append(_without_score(self._build_exact_query(exact)))
        datasource_names = list(datasources)
        if datasource_names:
            conditions.append(_without_score(self._build_any_term_query("datasource", datasource_names)))
        if documents is not None:
            conditions.append(_without_score(tantivy.Query.term_set_query(schema, "document", documents)))
        if viewer_names is not None:
            tokens = [_EVERYBODY, *(f"{_NAME_PREFIX}{name}" for name in viewer_names)]
            conditions.append(_without_score(self._build_any_term_query("viewer", tokens)))
        allowed = _all_of(conditions)
        if hidden_datasources:
            hidden = self._build_any_term_query("datasource", hidden_datasources)
            allowed = tantivy.Query.boolean_query(
                [(tantivy.Occur.Must, allowed), (tantivy.Occur.MustNot, hidden)]
            )
        return self._search_chunks(allowed, limit)

    def _search_chunks(self, query: tantivy.Query, limit: int) -> list[tuple[int, float]]:
        searcher = self._index.searcher()
        hits = searcher.search(query, limit, count=False).hits
        chunks: list[Any] = searcher.fast_field_values("chunk", [address for _, address in hits])
        scored = [(-score, int(chunk)) for (score, _), chunk in zip(hits, chunks, strict=True)]
        # By number where scores are equal: tantivy's order is that of segments, which merging changes.
        return [(chunk, -negative_score) for negative_score, chunk in sorted(scored)]

    def _build_term_queries(self, query: str) -> list[tantivy.Query]:
        """A query for each term in each field; built from terms, so that nothing in a query is syntax."""
        words, identifiers = parse_query(query)
        stems: dict[str, None] = {}
        for word in words:
            stems.update(dict.fromkeys(self._word_analyzer.analyze(word)))
        queries: list[tantivy.Query] = []
        for stem in stems:
            for field, weight in _FIELDS:
                queries.append(self._build_term_query(field, stem, weight))
        for identifier in identifiers:
            queries.append(self._build_term_query("names", identifier, _IDENTIFIER_WEIGHT))
        return queries

    def _build_any_term_query(self, field: str, terms: Iterable[str]) -> tantivy.Query:
        return _any_of([tantivy.Query.term_query(self._index.schema, field, term, "basic") for term in terms])

    def _build_exact_query(self, term: ExactTerm) -> tantivy.Query:
        if term.punctuated:
            return tantivy.Query.term_query(self._index.schema, "names", term.text, "basic")
        stems = self._word_analyzer.analyze(term.text)
        return _all_of(
            [tantivy.Query.term_query(self._index.schema, "body", stem, "basic") for stem in stems]
        )

    def _build_term_query(self, field: str, term: str, weight: float) -> tantivy.Query:
        query = tantivy.Query.term_query(self._index.schema, field, term, "freq")
        return tantivy.Query.boost_query(query, weight)

    @property
    def _writing(self) -> Any:
        assert self._writer is not None, "a reader does not write"
        return self._writer


def open_index(folder: Path, *, writes: bool) -> LexicalIndex:
    """The index in a folder; one of another version, or one that cannot be read, starts empty."""
    versioned = folder / f"v{VERSION}"
    if not writes:
        return LexicalIndex(versioned, writes=False)
    for other in folder.glob("v*"):
        if other != versioned:
            shutil.rmtree(other, ignore_errors=True)
    try:
        return LexicalIndex(versioned, writes=True)
    except ValueError as error:
        log.warning("The lexical index cannot be read and is built again: %s", error)
        return create_empty_index(folder)


def create_empty_index(folder: Path) -> LexicalIndex:
    versioned = folder / f"v{VERSION}"
    shutil.rmtree(versioned, ignore_errors=True)
    return LexicalIndex(versioned, writes=True)


def remove_index(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def index_exists(folder: Path) -> bool:
    """Whether a reader finds an index."""
    return (folder / f"v{VERSION}" / "meta.json").exists()


def _list_viewer_tokens(visible_to: VisibleTo) -> list[str]:
    if visible_to is None:
        return [_EVERYBODY]
    return [f"{_NAME_PREFIX}{name}" for name in visible_to]


def _any_of(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _all_of(queries: Sequence[tantivy.Query]) -> tantivy.Query:
    if len(queries) == 1:
        return queries[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in queries])


def _without_score(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _create_schema() -> tantivy.Schema:
    fields = tantivy.SchemaBuilder()
    fields.add_unsigned_field("chunk", fast=True)
    fields.add_unsigned_field("document", indexed=True)
    fields.add_text_field("datasource", tokenizer_name="raw", index_option="basic")
    fields.add_text_field("viewer", tokenizer_name="raw", index_option="basic")
    fields.add_text_field("head", tokenizer_name="words", index_option="freq")
    fields.add_text_field("body", tokenizer_name="words", index_option="freq")
    fields.add_text_field("names", tokenizer_name="names", index_option="freq")
    return fields.build()


def _create_word_analyzer() -> tantivy.TextAnalyzer:
    plain = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.remove_long(80))
    return (
        plain.filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def _create_identifier_analyzer() -> tantivy.TextAnalyzer:
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        .filter(tantivy.Filter.remove_long(130))
        .build()
    )
