"""Documents of every format as text under headings; what cannot be read says so, and nothing else happens."""

import codecs
import itertools
import unicodedata
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.knowledge_bases.documents import (
    ParsedDocument,
    RawDocument,
    Section,
    UnreadableDocument,
)
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.reading import reader_process
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from tests.conftest import ROOT
from tests.support.examples import scale_examples

FIXTURES = ROOT / "tests" / "fixtures" / "kb"


def fixture(name: str, media_type: str = "") -> tuple[str, ParsedDocument]:
    return read_document(RawDocument(name, (FIXTURES / name).read_bytes(), media_type))


def given_text(text: str, address: str, media_type: str = "") -> tuple[str, ParsedDocument]:
    return read_document(RawDocument(address, text.encode(), media_type))


def whole(parsed: ParsedDocument) -> str:
    return chunk_document(parsed)[0]


# --- PDF files, written here


def pdf(
    *pages: tuple[str, ...] | bytes,
    outline: tuple[tuple[str, int], ...] = (),
    title: str = "",
    encrypted: bool = False,
) -> bytes:
    """A PDF file with these lines (or packed drawing commands) on its pages, and outline entries that point
    at pages."""
    first_page, first_entry = 6, 6 + 2 * len(pages)
    kids = " ".join(f"{first_page + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{'/Outlines 5 0 R' if outline else ''}>>".encode(),
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Title({title})>>".encode(),
        (
            f"<</Type/Outlines/First {first_entry} 0 R/Last {first_entry + len(outline) - 1} 0 R"
            f"/Count {len(outline)}>>"
        ).encode(),
    ]
    for number, lines in enumerate(pages):
        stream = lines if isinstance(lines, bytes) else zlib.compress(_drawn(lines))
        resources = f"/Resources<</Font<</F1 3 0 R>>>>/Contents {first_page + 2 * number + 1} 0 R"
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]{resources}>>".encode())
        objects.append(b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream))
    for number, (name, page) in enumerate(outline):
        following = f"/Next {first_entry + number + 1} 0 R" if number + 1 < len(outline) else ""
        objects.append(
            f"<</Title({name})/Parent 5 0 R{following}/Dest[{first_page + 2 * page} 0 R/Fit]>>".encode()
        )
    return _file(
        objects,
        "/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<{0}>/U<{0}>>>/ID[<00><00>]".format("41" * 32)
        if encrypted
        else "",
    )


def _drawn(lines: tuple[str, ...]) -> bytes:
    operators = " 0 -20 Td ".join(f"({line}) Tj" for line in lines)
    return f"BT /F1 12 Tf 50 700 Td {operators} ET".encode()


def _file(objects: list[bytes], trailer: str) -> bytes:
    written = [
        b"%PDF-1.4\n",
        *(b"%d 0 obj\n%s\nendobj\n" % (number, body) for number, body in enumerate(objects, start=1)),
    ]
    places = list(itertools.accumulate(map(len, written)))
    table = b"".join(b"%010d 00000 n \n" % place for place in places[:-1])
    head = f"trailer<</Size {len(objects) + 1}/Root 1 0 R/Info 4 0 R{trailer}>>".encode()
    return b"".join(written) + b"xref\n0 %d\n0000000000 65535 f \n%s%s\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        table,
        head,
        places[-1],
    )


# --- each format


def test_markdown_is_kept_as_written_under_its_headings() -> None:
    kind, parsed = fixture("guide.md")
    top, before, back = "Deploying the gateway", "Before you start", "Rolling back"
    assert (kind, parsed.title, parsed.language) == ("markdown", top, "")
    assert [(section.headings, section.kind, section.text.split("\n")[0]) for section in parsed.sections] == [
        ((), "prose", "How the gateway reaches production."),
        (
            (top,),
            "prose",
            "The gateway is deployed by [Argo CD](https://argo.example.com/docs) from the `main` branch.",
        ),
        ((top,), "prose", "> [!NOTE]"),
        ((top, before), "list", "- You need access to the cluster."),
        ((top, before), "code", "```bash"),
        ((top, before), "table", "| step | who |"),
        ((top, back), "prose", "See [the runbook][runbook] for more."),
        ((top, back, "When it fails"), "prose", ":::{warning}"),
        ((top, back, "When it fails"), "prose", "[runbook]: https://runbooks.example.com/gateway"),
    ]
    assert "an inner remark" not in whole(parsed)
    assert "# this is no heading\ngatewayctl login" in parsed.sections[4].text


def test_definitions_of_links_stay_where_they_are() -> None:
    _, parsed = given_text("One [a].\n\n[a]: https://example.com/a\n\nTwo.", "a.md")
    assert whole(parsed) == "One [a].\n\n[a]: https://example.com/a\n\nTwo."


@pytest.mark.parametrize(
    ("text", "title", "headings"),
    [
        ("no heading", "a.md", ()),
        ("# One ##\n\nx", "One", ("One",)),
        ("# C# and `code` *too*\n\nx", "C# and code too", ("C# and code too",)),
        ("# [Linked](https://example.com/x) {#anchor}\n\nx", "Linked", ("Linked",)),
        ("<h1 align='center'>Drawn</h1>\n\nx", "Drawn", ("Drawn",)),
        ("---\ntitle: Front\n---\n# Head\n\nx", "Front", ("Head",)),
        ("---\nnot: [closed\n---\n\nx", "not: [closed", ("not: [closed",)),
        ("# A\n\n### B\n\nx", "A", ("A", "B")),
        ("## B\n\n# A\n\nx", "B", ("A",)),
        ("# Only a heading", "Only a heading", ("Only a heading",)),
    ],
)
def test_titles_and_headings_of_markdown(text: str, title: str, headings: tuple[str, ...]) -> None:
    _, parsed = given_text(text, "docs/a.md")
    assert (parsed.title, parsed.sections[-1].headings) == (title, headings)


def test_a_web_page_is_its_main_content() -> None:
    kind, parsed = fixture("page.html")
    top = "Rotating certificates"
    assert (kind, parsed.title) == ("html", "Rotating certificates | Platform handbook")
    assert parsed.sections == (
        Section(
            "Certificates live for ninety days; see [the "
            "policy](https://handbook.example.com/docs/policy.html).\nRotate them early.",
            (top,),
        ),
        Section(
            "1. Ask for a certificate\n   - by name\n2. Install it with `certctl`", (top, "Steps"), "list"
        ),
        Section("```python\ndef rotate():\n    return 1\n```", (top, "Steps"), "code"),
        Section(
            "| Name | Days |\n| --- | --- |\n| edge | 90 |\n| inner \\| mesh | 30 |", (top, "Steps"), "table"
        ),
        Section("Mind the clock.", (top, "Steps")),
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            f"<div class='top'>{'<a href=/a>Menu</a>' * 4}</div><p>All of the text of the page.</p>",
            "All of the text of the page.",
        ),
        ("<header>Site</header><article><header><h1>T</h1></header><p>x</p></article>", "# T\n\nx"),
        ("<div class='sidebar content'><h1>T</h1><p>x</p></div>", "# T\n\nx"),
        (
            "<main><div class='page-toc'>On this page</div><p>All of the text of the page.</p></main>",
            "All of the text of the page.",
        ),
        (
            "<main><div class='nav-title'><h1>T</h1></div><p>All of the text.</p></main>",
            "# T\n\nAll of the text.",
        ),
        ("<p>a<br>b&nbsp;c &lt;d&gt; &#7;e</p>", "a\nb c <d> e"),
        ("loose <p>text</p> here", "loose\n\ntext\n\nhere"),
        ("<table><tr><td><h2>Placed</h2><p>x</p></td></tr></table>", "# Placed\n\nx"),
        ("<ul><li>One<pre>code\n  more</pre></li></ul>", "- One\n\n```\ncode\n  more\n```"),
        ("<dl><dt>Pod</dt><dd>A group</dd></dl>", "Pod\n\nA group"),
        (
            "<p>see <a href='javascript:x()'>this</a> or <a href='/up'>that</a></p>",
            "see this or [that](https://example.com/up)",
        ),
        ("<p>see <a href='#x'>below</a><a href='#y'>#</a></p>", "see below"),
        ("<blockquote>Said.</blockquote>", "> Said."),
        ("<p>x</p><p aria-hidden=true>y</p><noscript>z</noscript><template>t</template>", "x"),
        ("<p>never closed <b>and <i>mixed</b> up", "never closed and mixed up"),
    ],
)
def test_parts_of_web_pages(body: str, expected: str) -> None:
    kind, parsed = given_text(
        f"<!DOCTYPE html><html><body>{body}</body></html>",
        "https://example.com/docs/page",
        "text/html; charset=utf-8",
    )
    assert (kind, " ".join(whole(parsed).split(" "))) == ("html", expected)


def test_elements_deeper_than_any_page_has_do_no_harm() -> None:
    kind, parsed = given_text(f"<html><p>Before.</p>{'<div>' * 5_000}deep{'</div>' * 5_000}</html>", "a.html")
    assert kind == "html"
    assert whole(parsed).startswith("Before.")


def test_a_pdf_is_its_pages() -> None:
    kind, parsed = read_document(
        RawDocument("manual.pdf", pdf(("Hello world.", "Second line"), (), ("Third page",), title="A manual"))
    )
    assert (kind, parsed.title) == ("pdf", "A manual")
    assert parsed.sections == (
        Section("Hello world.\nSecond line", ("Page 1",)),
        Section("Third page", ("Page 3",)),
    )


def test_the_outline_of_a_pdf_gives_headings() -> None:
    pages = (("Cover",), ("1 Install", "Get it.", "2 Run", "Start it."), ("Still running.",))
    _, parsed = read_document(RawDocument("manual.pdf", pdf(*pages, outline=(("Install", 1), ("Run", 1)))))
    assert [(section.text, section.headings) for section in parsed.sections] == [
        ("Cover", ("Page 1",)),
        ("1 Install\nGet it.", ("Install", "Page 2")),
        ("2 Run\nStart it.", ("Run", "Page 2")),
        ("Still running.", ("Run", "Page 3")),
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pdf(("Secret",), encrypted=True), "password-protected"),
        (pdf((), ()), "no text"),
        (b"%PDF-1.7\nnothing else", "corrupt"),
        (pdf(("Hello",))[:200], "corrupt"),
    ],
    ids=["encrypted", "scanned", "empty", "half"],
)
def test_pdf_files_that_cannot_be_read_say_why(content: bytes, words: str) -> None:
    with pytest.raises(UnreadableDocument, match=words):
        read_document(RawDocument("a.pdf", content))


def test_restructured_text_loses_nothing_to_unknown_directives_and_opens_no_file() -> None:
    kind, parsed = fixture("handbook.rst")
    top, severities, paging = "On-call guide", "Severities", "Paging"
    assert (kind, parsed.title) == ("rst", top)
    assert parsed.sections == (
        Section(
            "Call the duty manager or read [the policy](https://policy.example.com). Use `pagectl`.", (top,)
        ),
        Section("Note: Severity one wakes people up.", (top, severities)),
        Section("Versionadded: 2.1\nSeverity four exists.", (top, severities)),
        Section("| name | minutes |\n| --- | --- |\n| one | 5 |\n| two | 30 |", (top, severities), "table"),
        Section(
            "1. Open the tool.\n2. Page the team:\n   - first the primary\n   - then the secondary",
            (top, severities, paging),
            "list",
        ),
        Section('```python\npage("team")\n```', (top, severities, paging), "code"),
    )


@pytest.mark.parametrize(
    "directive", ["include", "literalinclude", "raw:: html\n   :file", "csv-table:: t\n   :file", "figure"]
)
def test_restructured_text_reads_no_other_file(directive: str, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("the content of another file")
    separator = ":" if "\n" in directive else "::"
    _, parsed = given_text(
        f"Before.\n\n.. {directive}{separator} {tmp_path / 'other.txt'}\n\nAfter.", "a.rst"
    )
    assert "Before." in whole(parsed)
    assert "After." in whole(parsed)
    assert "another file" not in whole(parsed)


def test_an_interface_description_has_a_section_for_each_operation() -> None:
    kind, parsed = fixture("petstore.yaml")
    get = ("pets", "GET /pets/{petId}: One pet")
    assert (kind, parsed.title) == ("openapi", "Pet service")
    assert parsed.sections == (
        Section("Pet service, version 1.2\n\nKeeps pets.\n\nServers: https://pets.example.com/v1"),
        Section("Everything about pets", ("pets",)),
        Section("`GET /pets/{petId}`, operation `getPet`", get),
        Section(
            "Parameters:\n- petId (path, string (uuid), required)\n- verbose (query, boolean): With its "
            "history",
            get,
            "list",
        ),
        Section("Responses:\n- 200 (Pet): The pet\n- default: It went wrong", get, "list"),
        Section("`GET /health`", ("Operations", "GET /health")),
        Section("Responses:\n- 200: It lives", ("Operations", "GET /health"), "list"),
        Section(
            "Pet: object: An animal\n- name (string, required)\n- tags (array of Tag)",
            ("Schemas", "Pet"),
            "list",
        ),
        Section("Tag: one of small, large", ("Schemas", "Tag"), "list"),
    )


SWAGGER = """{"swagger": "2.0", "info": {"title": "Old"}, "host": "old.example.com",
"basePath": "/v1", "paths": {"/things": {"post": {
"summary": "Make", "deprecated": true, "parameters": [
{"in": "body", "name": "thing", "required": true, "schema": {"$ref": "#/definitions/Thing"}}],
"responses": {"201": {"description": "Made",
"schema": {"type": "array", "items": {"$ref": "#/definitions/Thing"}}}}}}},
"definitions": {"Thing": {"properties": {"size": {"type": ["integer", "null"]}}}}}"""


@pytest.mark.parametrize(
    ("address", "text"),
    [("old.json", SWAGGER), ("https://example.com/v2/api-docs", SWAGGER.replace("\n", ""))],
)
def test_older_interface_descriptions(address: str, text: str) -> None:
    kind, parsed = given_text(text, address, "application/json")
    assert (kind, parsed.title) == ("openapi", "Old")
    for expected in (
        "Servers: old.example.com/v1",
        "## POST /things: Make",
        "deprecated",
        "- thing (body, Thing, required)",
        "- 201 (array of Thing): Made",
        "Thing: object\n- size (integer/null)",
    ):
        assert expected in whole(parsed)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("openapi: 3.0.0\ninfo: {}\n", "code"),
        ("openapi: 3.0.0\npaths: " + "[" * 50_000, "code"),
        (f"openapi: 3.0.0\npaths: {{/a: {{get: {{x: {'[' * 200}{']' * 200}}}}}}}", "code"),
        ("openapi: 3.0.0\npaths: {/a: {get: 3}}\n", "code"),
        ("openapi: 3.0.0\npaths: {/a: {get: {responses: [], parameters: {}, tags: x}}}\n", "openapi"),
        ('{"openapi": "3.0.0", "paths": {"/a": {"$ref": "#/paths/~1a"}}}', "code"),
        ("x: &x [1]\ny: &y [*x, *x]\nopenapi: 3.0.0\npaths: {/a: {get: {description: d}}}", "openapi"),
    ],
)
def test_odd_interface_descriptions_are_read_as_far_as_they_go(text: str, kind: str) -> None:
    assert given_text(text, "api.yaml")[0] == kind


@pytest.mark.parametrize(
    ("name", "language", "headings"),
    [
        ("service.py", "Python", [(), ("def ask(question: str) -> str",), ("class Service",), ()]),
        ("main.go", "Go", [("package main",), ("func Greet(name string) string",), ("type Server struct",)]),
        ("deploy.yaml", "YAML", [("Deployment web",), ("Service web-public",)]),
    ],
)
def test_source_code_is_cut_at_its_definitions_and_kept_as_it_is(
    name: str, language: str, headings: list[tuple[str, ...]]
) -> None:
    kind, parsed = fixture(name)
    assert (kind, parsed.title, parsed.language) == ("code", name, language)
    assert [section.headings for section in parsed.sections] == headings
    assert whole(parsed) == (FIXTURES / name).read_text().replace("\n\n\n", "\n\n")


def test_a_definition_keeps_its_comment_its_decorators_and_its_docstring() -> None:
    _, parsed = fixture("service.py")
    assert parsed.sections[1].text.startswith(
        '# How often we ask.\n@cached\ndef ask(question: str) -> str:\n    """Asks once."""\n'
    )


def test_a_long_class_is_cut_at_its_methods() -> None:
    methods = "\n".join(f"    def method{number}(self):\n" + "        call()\n" * 10 for number in range(10))
    _, parsed = given_text(f"class Long:\n    x = 1\n\n{methods}", "long.py")
    assert [section.headings for section in parsed.sections[:3]] == [
        ("class Long",),
        ("class Long", "def method0(self)"),
        ("class Long", "def method1(self)"),
    ]


@pytest.mark.parametrize(
    ("address", "text", "language", "headings"),
    [
        ("bin/tool", "#!/usr/bin/env bash\nset -e\n\nmain() {\n  ls\n}\n", "Shell", [(), ("main()",)]),
        ("bin/tool", "#!/usr/bin/python3\ndef f(): pass\n", "Python", [(), ("def f(): pass",)]),
        ("a.py", "def broken(:\n    pass\n", "Python", [("def broken",)]),
        (
            "a.ts",
            "export async function f(): Promise<void> {\n}\n\nconst g = (a: string) => {\n};\n",
            "TypeScript",
            None,
        ),
        (
            "a.rs",
            "/// Doc.\n#[derive(Debug)]\npub struct A {\n}\n\nimpl A {\n}\n",
            "Rust",
            [("pub struct A",), ("impl A",)],
        ),
        (
            "a.tf",
            'resource "x" "y" {\n  a = 1\n}\n\nvariable "z" {}\n',
            "Terraform",
            [('resource "x" "y"',), ('variable "z" {}',)],
        ),
        ("a.toml", "[tool]\na = 1\n\n[other]\nb = 2\n", "TOML", [("[tool]",), ("[other]",)]),
        ("Makefile", "X := 1\n\nbuild: x\n\tgo build\n", "Makefile", [(), ("build: x",)]),
        ("Dockerfile", "FROM a\nRUN b\n", "Dockerfile", [("FROM a",)]),
        ("a.json", '{"a": 1}', "JSON", [()]),
    ],
)
def test_languages(address: str, text: str, language: str, headings: list[tuple[str, ...]] | None) -> None:
    kind, parsed = given_text(text, address)
    assert (kind, parsed.language) == ("code", language)
    assert headings is None or [section.headings for section in parsed.sections] == headings
    assert whole(parsed) == text


def test_json_on_one_line_is_spread_over_lines() -> None:
    _, parsed = given_text(
        '{"list": [' + ", ".join(f'"value {number}"' for number in range(300)) + "]}", "a.json"
    )
    assert '\n  "value 7",\n' in parsed.sections[0].text


@pytest.mark.parametrize(
    ("address", "text", "expected"),
    [
        ("a.csv", 'a,b\n1,"x\ny"\n', "| a | b |\n| --- | --- |\n| 1 | x y |"),
        ("a.tsv", "a\tb\n1\t|\n", "| a | b |\n| --- | --- |\n| 1 | \\| |"),
        ("a.csv", "a;b\n\n;\n1;2,5\n", "| a | b |\n| --- | --- |\n| 1 | 2,5 |"),
    ],
)
def test_tables(address: str, text: str, expected: str) -> None:
    kind, parsed = given_text(text, address)
    assert (kind, parsed.sections) == ("csv", (Section(expected, (), "table"),))


def test_a_long_table_ends_with_a_word_about_the_rest() -> None:
    _, parsed = read_in_process(RawDocument("a.csv", b"n\n" + b"1\n" * 20_100))
    assert len(parsed.sections[0].text.split("\n")) == 20_002
    assert parsed.missing_parts == ("the last 100 of 20,100 rows of the table",)
    assert parsed.sections[-1].text == (
        "[Too long to be read as a whole. Missing: the last 100 of 20,100 rows of the table.]"
    )


# --- what it is


@pytest.mark.parametrize(
    ("address", "media_type", "content", "kind"),
    [
        ("a.html", "text/html", pdf(("Hello",)), "pdf"),
        ("a.md", "", b"<!doctype html><title>x</title><p>y", "html"),
        ("a.txt", "text/plain", b"<html><p>y</html>", "html"),
        ("https://x.example/a.py", "text/html", b"<div><p>the page of a file</p></div>", "html"),
        ("https://x.example/a.py", "text/plain", b"def f(): pass", "code"),
        ("https://x.example/a.md?raw=1#top", "text/plain", b"# x", "markdown"),
        ("https://x.example/", "text/html", b"just text", "text"),
        ("a.html", "", b"just text", "text"),
        ("https://x.example/page", "text/markdown", b"# x", "markdown"),
        ("https://x.example/data", "application/json", b"[1]", "code"),
        ("https://x.example/data", "application/x-yaml", b"a: 1", "code"),
        ("https://x.example/data", "text/csv", b"a,b", "csv"),
        ("LICENSE", "", b"Permission", "text"),
        ("C:\\docs\\a.rst", "", b"x", "rst"),
        ("http://[broken", "", b"x", "text"),
    ],
)
def test_content_beats_names_and_names_beat_media_types(
    address: str, media_type: str, content: bytes, kind: str
) -> None:
    assert read_document(RawDocument(address, content, media_type))[0] == kind


GREETING = "Grüße — 漢字"


@pytest.mark.parametrize(
    "content",
    [
        GREETING.encode(),
        codecs.BOM_UTF8 + GREETING.encode(),
        GREETING.encode("utf-16"),
        codecs.BOM_UTF16_BE + GREETING.encode("utf-16-be"),
    ],
)
def test_encodings(content: bytes) -> None:
    assert read_document(RawDocument("a.txt", content))[1].sections == (Section(GREETING),)


@pytest.mark.parametrize(
    ("address", "media_type", "content", "expected"),
    [
        ("a.txt", "", "Grüße “x”".encode("cp1252"), "Grüße “x”"),
        ("a.txt", "text/plain; charset=koi8-r", "Привет".encode("koi8-r"), "Привет"),
        ("a.txt", "text/plain; charset=nonsense", "Grüße".encode(), "Grüße"),
        ("a.txt", "text/plain; charset=utf-8", b"Gr\xfc\xdfe", "Grüße"),
        ("a.html", "", '<html><meta charset="shift_jis"><p>漢字</p>'.encode("shift_jis"), "漢字"),
        ("a.txt", "text/plain; charset=zlib_codec", b"plain", "plain"),
        ("a.txt", "", b"a\x81b", "ab"),
    ],
)
def test_other_encodings(address: str, media_type: str, content: bytes, expected: str) -> None:
    assert read_document(RawDocument(address, content, media_type))[1].sections[0].text == expected


def test_text_is_composed_and_holds_nothing_unseen() -> None:
    _, parsed = given_text("e\u0301\r\nx\x1b[31mred\x1b[0m\x07 \t\r\n\r\n\n\n\ny\u202ez\u2028end", "a.txt")
    assert [section.text for section in parsed.sections] == ["é\nxred", "yz\nend"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no text"),
        (b" \n\n ", "no text"),
        (b"PK\x03\x04abc", "its zip archive is incomplete"),
        (b"\x89PNG\r\n", "a picture"),
        (b"text " * 1_000 + b"\0", "not a text file"),
        (bytes(range(1, 32)) * 10, "not a text file"),
        (b"<html><script>x</script></html>", "no text"),
        (b"x" * 20_000_001, "larger than 20 MB"),
    ],
    ids=["empty", "blank", "zip", "png", "nul", "controls", "script", "large"],
)
def test_what_holds_no_text_says_so(content: bytes, words: str) -> None:
    with pytest.raises(UnreadableDocument, match=words):
        read_document(RawDocument("a.txt", content))


# --- whatever comes

ADDRESSES = [
    f"a.{extension}"
    for extension in "md rst html txt py go yaml json toml csv tsv tf js adoc org ipynb eml rtf xml".split()
]
SNIPPETS = st.sampled_from(
    [
        b"# a\n",
        b"a\n===\n",
        b".. x:: y\n   z\n",
        b".. include:: a\n",
        b"<div>",
        b"</p>",
        b"<table><tr><td>",
        b"<!--",
        b"| a | b |\n",
        b"|-|-|\n",
        b"```\n",
        b"- a\n  - b\n",
        b"def f(:\n",
        b"class A:\n",
        b"openapi: 3.0.0\n",
        b"paths:\n  /a:\n    get: {}\n",
        b'{"swagger": "2.0", "paths": {',
        b"}}",
        b"&a [*a]\n",
        b"---\n",
        b"\xff\xfe",
        b"\xe2\x82",
        b"\0",
        b"\\",
        b"`x`_ |s| [1]_\n",
        b"&#0;&#xD800;",
        b'"',
        b",",
        b"\t",
        b"\r",
        b"\n\n",
        b"text ",
        b"|===\n",
        b"* a :b:\n",
        b"#+begin_src x\n",
        b"{\\rtf1 ",
        b"{\\listtext\\outlinelevel0 ",
        b"<ac:structured-macro ac:name='code'><ac:link>",
        b"]]>",
        b'{"cells": [{"cell_type": "code", "source": [',
        b"Content-Type: multipart/mixed; boundary=a\n\n--a\n",
        b"Subject: =?utf-8?q?=ff?=\n",
    ]
)


@settings(max_examples=scale_examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(
    address=st.sampled_from(ADDRESSES),
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(SNIPPETS, max_size=25).map(b"".join),
        st.text(max_size=200).map(str.encode),
    ),
    media_type=st.sampled_from(
        ["", "text/html", "text/plain; charset=utf-16", "application/json", "x/y;;=", "text/markdown"]
    ),
)
def test_any_bytes_are_text_or_unreadable(address: str, content: bytes, media_type: str) -> None:
    try:
        _, parsed = read_in_process(RawDocument(address, content, media_type))
    except UnreadableDocument:
        return
    assert parsed.title
    for text in (
        parsed.title,
        *(text for section in parsed.sections for text in (section.text, *section.headings)),
    ):
        assert unicodedata.is_normalized("NFC", text)
        assert not any(
            unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t" for character in text
        )
        assert "\n\n\n" not in text
    chunk_document(parsed)


# --- apart


def test_a_large_document_is_read_in_another_process_to_the_same_result() -> None:
    raw = RawDocument(
        "a.md", ("# Title\n\nSome text with ümläuts.\n\n" * 2_500).encode(), link="https://example.com/a"
    )
    assert read_document(raw) == read_in_process(raw)


def test_a_document_that_takes_too_long_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "WALL_SECONDS", 0.001)
    with pytest.raises(UnreadableDocument, match="too long"):
        read_document(RawDocument("a.pdf", pdf(("Hello",))))


def test_a_text_that_is_too_long_ends_with_a_word_about_the_rest() -> None:
    _, parsed = read_in_process(RawDocument("a.md", b"# Title\n\n" + b"text, " * 340_000))
    assert parsed.sections[-1].text == (
        "[Too long to be read as a whole. Missing: the last 40,009 of 2,040,000 characters.]"
    )
    assert sum(len(section.text) for section in parsed.sections) <= 2_000_100


@pytest.mark.full
def test_a_file_that_unpacks_to_more_than_may_be_used_is_unreadable() -> None:
    packing = zlib.compressobj(1)
    stream = b"".join(packing.compress(b"(Hello) Tj " * 100_000) for _ in range(1_200)) + packing.flush()
    assert len(stream) < 20_000_000
    with pytest.raises(UnreadableDocument, match="too much time or memory"):
        read_document(RawDocument("a.pdf", pdf(stream)))
