"""A folder with a file of every format: each is found by its questions, and each refused one says why."""

import io
import zipfile
from pathlib import Path

import openpyxl  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.indexing.chunking import chunk_document
from ai_platform_engineering.knowledge_bases.reading.document_reader import read_document
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from tests.conftest import ROOT
from tests.support.examples import scale_examples
from tests.support.knowledge import add_datasource, open_knowledge_base

FORMATS = ROOT / "tests" / "fixtures" / "kb" / "formats"

QUESTIONS = {
    "recovery.docx": ("promote the replica in Frankfurt", "RTO of billing", "drill every quarter"),
    "roadmap.pptx": ("runners on spot instances", "savings plan finance", "retire the legacy gateway"),
    "inventory.xlsx": ("wombat-prod region", "renewal 2027-03-31", "egress costs in euro"),
    "onboarding.odt": ("namespace of every team", "kangaroo group owners", "memory of a small quota"),
    "capacity.ipynb": ("growth of the lemur volumes", "fit_growth"),
    "gateway.adoc": ("Heron gateway TLS", "requests of the team plan", "toucan route"),
    "oncall.org": ("secondary paged", "ibis team", "pagectl ack"),
    "runbook.xml": ("restart two okapi brokers", "brokerctl drain", "team streaming broker"),
    "postmortem.eml": ("cache stampede", "jitter expiry", "ada@example.org"),
    "maintenance.eml": ("rack pelican rebooted",),
    "change.rtf": ("capybara fabric approvals", "wait for the board"),
    "docs_site.html": ("retired after two quolls",),
    "shift_jis.txt": ("証明書",),
    "gb18030.txt": ("流水线",),
    "windows_1251.txt": ("Остановите конвейер",),
    "utf16_without_bom.txt": ("flamingo cluster",),
    "utf16_with_bom.txt": ("ostrich cluster",),
    "declared.html": ("인증서",),
}
NAMES = {compute_document_id("formats", name): name for name in QUESTIONS}
ENCRYPTED = "The document is password-protected. Save a copy without a password and add that."
BROKEN = "The document is corrupt: its text cannot be read."
REFUSALS = {
    "encrypted.docx": ENCRYPTED,
    "encrypted.odt": ENCRYPTED,
    "old.doc": "The document is in a legacy Office format (.doc, .xls, .ppt, .msg). "
    "Save it as .docx, .xlsx, .pptx or .eml and add that file.",
    "scanned.pdf": "The PDF has no text layer: its pages are scanned images. "
    "Run OCR on it (for example with ocrmypdf) and add the result.",
    "cut_off.docx": "The document is corrupt: its zip archive is incomplete.",
    "bomb.docx": "A part of the document decompresses to more than 50 MB.",
    "entities.docx": BROKEN,
    "nested.docx": BROKEN,
    "archive.zip": "It is a binary file.",
}
LEFT_OUT = {
    "package-lock.json": "It is a lock file.",
    "poetry.lock": "It is a lock file.",
    "network.svg": "It is an SVG image.",
    "portal.min.js": "It is minified code.",
    "types.go": "It is generated code.",
    "inventory.pb.go": "It is generated code.",
}


def read_text(name: str) -> str:
    _, parsed = read_document(RawDocument(name, (FORMATS / name).read_bytes()))
    return chunk_document(parsed)[0]


@pytest.mark.full
async def test_every_format_is_found_by_its_questions_and_every_refusal_says_why(tmp_path: Path) -> None:
    async with open_knowledge_base(tmp_path) as kb:
        job = await add_datasource(kb, FORMATS)
        best_documents: dict[str, dict[str, str]] = {}
        for name, questions in QUESTIONS.items():
            best_documents[name] = {}
            for question in questions:
                best = (await kb.search(question, limit=1))[0]
                best_documents[name][question] = NAMES.get(best.document_id, best.title)
    assert best_documents == {name: dict.fromkeys(questions, name) for name, questions in QUESTIONS.items()}
    refused = {f"refused/{name}": sentence for name, sentence in REFUSALS.items()}
    left_out = {f"left_out/{name}": sentence for name, sentence in LEFT_OUT.items()}
    assert dict(job.failed) == refused | left_out
    assert job.done == len(QUESTIONS) + 1  # and the script that makes the files


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "recovery.docx",
            "# Disaster recovery plan\n\n## Failover of the database\n\n"
            "Promote the replica in Frankfurt before you move the traffic.\n\n"
            "1. Freeze the deployments\n2. Promote the replica\n- Tell the status page\n\n"
            "### Recovery objectives\n\n"
            "| Service | RTO | RPO |\n| --- | --- | --- |\n| Billing | 15 minutes | 1 minute |\n"
            "| Reports | 8 hours | 1 day |\n\nThe drill takes place every quarter.\n\nKept.",
        ),
        (
            "roadmap.pptx",
            "# Platform roadmap\n\n- Move the runners to spot instances\n  - Saves forty percent\n\n"
            "Notes: Ask finance about the savings plan.\n\n# Milestones\n\n"
            "| Quarter | Goal |\n| --- | --- |\n| Q3 | Retire the legacy gateway |",
        ),
        (
            "inventory.xlsx",
            "# Clusters\n\n| Cluster | Region | Nodes | Renewal |\n| --- | --- | --- | --- |\n"
            "| wombat-prod | eu-central-1 | 42 | 2027-03-31 |\n| wombat-test | eu-west-1 | 6.5 |  |\n\n"
            "# Costs\n\n| Item | Euro |\n| --- | --- |\n| Egress | 1250.5 |",
        ),
        (
            "onboarding.odt",
            "# Onboarding of teams\n\nEvery team gets a namespace; see the "
            "[quota page](https://wiki.example/quota)\n\n## First steps\n\n"
            "1. Request the namespace\n2. Add the owners to the kangaroo group\n\n"
            "| Size | Memory |\n| --- | --- |\n| small | 8 GiB |",
        ),
        (
            "capacity.ipynb",
            "# Capacity forecast\n\nWe fit the growth of the lemur volumes.\n\n"
            "```python\ngrowth = fit_growth(volumes)\nprint(growth)\n```\n\nA raw remark.",
        ),
        (
            "gateway.adoc",
            "# API gateway\n\nThe Heron gateway terminates TLS. "
            "See [the handbook](https://docs.example/heron).\n\n## Rate limits\n\nLimits by plan\n\n"
            "| Plan | Requests |\n| --- | --- |\n| free | 100 |\n| team | 5000 |\n\n"
            "- Limits count per token\n  - and per route\n1. Ask for more\n1. Wait for the approval\n\n"
            "```yaml\nlimit:\n  burst: 20\n```\n\nNOTE: Bursts of the toucan route are not limited.",
        ),
        (
            "oncall.org",
            "# Paging policy\n\nThe secondary is paged after ten minutes; see the "
            "[rota](https://wiki.example/rota).\n\n## Escalation\n\n"
            "- Call the duty manager\n  - then the ibis team\n1. Write the summary\n\n"
            "| Severity | Answer within |\n| --- | --- |\n| sev1 | 5 minutes |\n\n"
            "```sh\npagectl ack --all\n```",
        ),
        (
            "runbook.xml",
            "# Restart of the broker\n\nDrain the broker first — see Broker topology and the drain guide.\n\n"
            "Warning: Quorum\n\nNever restart two okapi brokers at once.\n\n"
            '```bash\nbrokerctl drain --id 3 && echo "<done>"\n```\n\nState: APPROVED\n\n'
            "- [x] Check the lag\n\n## Owners\n\n| Broker | Team |\n| --- | --- |\n| 3 | Streaming |",
        ),
        (
            "postmortem.eml",
            "# Postmortem: the Größe of the outage\n\nFrom: Ada <ada@example.org>\nTo: oncall@example.org\n"
            "Date: Tue, 03 Nov 2026 09:00:00 +0000\nAttachments: graph.bin\n\n"
            "The cache stampede began at noon.\n\nWe will add jitter to the expiry.",
        ),
        (
            "maintenance.eml",
            "# Maintenance window\n\nFrom: noc@example.org\n\n## Switches\n\n"
            "- Rack pelican is rebooted on Sunday",
        ),
        (
            "change.rtf",
            "# Change windows\n\nChanges to the capybara fabric need two approvals – grüße.\n\n## Steps\n\n"
            "- Open the ticket\n- Wait for the board\n\n| Risk | Board |\n| --- | --- |\n"
            "| high | weekly |\n\nThe end.",
        ),
        ("docs_site.html", "# Feature flags\n\nA flag is retired after two quolls."),
        ("shift_jis.txt", "証明書の更新\n\n証明書は三十日前に更新されます。ログを確認してください。"),
        ("gb18030.txt", "回滚步骤\n\n先暂停流水线，然后恢复上一个版本。"),
        ("windows_1251.txt", "Откат выпуска\n\nОстановите конвейер и верните прежнюю версию."),
        ("utf16_without_bom.txt", "Quota of the flamingo cluster\n\nTwelve nodes, größer later."),
        ("declared.html", "인증서는 갱신됩니다."),
    ],
)
def test_headings_lists_and_tables_of_a_format(name: str, expected: str) -> None:
    assert read_text(name) == expected


def test_a_sheet_that_is_too_long_says_which_rows_are_missing() -> None:
    workbook = openpyxl.Workbook(write_only=True)
    sheet = workbook.create_sheet("Load")
    for number in range(20_101):
        sheet.append([number])
    content = io.BytesIO()
    workbook.save(content)
    kind, parsed = read_document(RawDocument("load.xlsx", content.getvalue()))
    assert kind == "xlsx"
    assert len(parsed.sections) == 2
    (missing,) = parsed.missing_parts
    assert missing.startswith("rows 20,002 to ")
    assert missing.endswith("of the sheet Load")


SHEET = b"""<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
<dimension ref="A1:XFD1048576"/><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>%s</t></is></c></row>
<row r="900000"><c r="XFD900000"><v>7</v></c></row></sheetData></worksheet>"""


def _rewrite_sheet(sheet: bytes) -> bytes:
    """The workbook of the folder with another first sheet."""
    content = io.BytesIO()
    with zipfile.ZipFile(FORMATS / "inventory.xlsx") as old, zipfile.ZipFile(content, "w") as new:
        for part in old.infolist():
            new.writestr(part, sheet if part.filename.endswith("sheet1.xml") else old.read(part))
    return content.getvalue()


def test_a_sheet_that_claims_to_be_huge_is_read_as_it_is() -> None:
    _, parsed = read_document(RawDocument("a.xlsx", _rewrite_sheet(SHEET % b"small after all")))
    assert "small after all" in parsed.sections[0].text
    assert parsed.missing_parts == ("the columns after column 200 of the sheet Clusters",)


def test_entities_in_a_sheet_are_refused() -> None:
    sheet = b'<!DOCTYPE x [<!ENTITY a "aaaa">]>' + SHEET % b"&a;"
    with pytest.raises(UnreadableDocument, match="looks like xlsx but cannot be read"):
        read_document(RawDocument("a.xlsx", _rewrite_sheet(sheet)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "<div>" + "<p>Many words about other things in a side column.</p>" * 20 + "</div>"
            "<main><p>The answer is in the main part.</p></main>",
            "The answer is in the main part.",
        ),
        (
            "<ul>" + "<li><a href='/x'>a long entry of a long menu</a></li>" * 30 + "</ul>"
            "<article><p>The only article of the page.</p></article>",
            "The only article of the page.",
        ),
        (
            "<main>Loading</main><div><p>What the page says without its script, in full sentences.</p></div>",
            "Loading\n\nWhat the page says without its script, in full sentences.",
        ),
        ("<article><p>One.</p></article><article><p>Two.</p></article>", "One.\n\nTwo."),
    ],
    ids=["main", "article", "empty main", "articles"],
)
def test_main_and_article_win_over_what_is_beside_them(body: str, expected: str) -> None:
    page = f"<html><head><title>T</title></head><body>{body}</body></html>"
    _, parsed = read_document(RawDocument("a.html", page.encode()))
    assert chunk_document(parsed)[0] == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.ipynb",
            b'{"cells": [{"cell_type": "code"}, 7, {"cell_type": "markdown", "source": [1, "text"]}]}',
        ),
        ("a.eml", b"Subject: =?broken?=\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\ntext\n"),
        ("a.rtf", b"{\\rtf1 " + b"{" * 5_000 + b"text"),
        ("a.adoc", b"|===\n|text"),
        ("a.org", b"#+begin_src\ntext\n* x"),
        ("a.xml", b"<p>text<ac:structured-macro ac:name='code'><ac:plain-text-body>&nope;"),
    ],
)
def test_what_is_broken_is_read_as_far_as_it_goes(name: str, content: bytes) -> None:
    _, parsed = read_document(RawDocument(name, content))
    assert "text" in chunk_document(parsed)[0]


OFFICE_FILES = ("recovery.docx", "roadmap.pptx", "inventory.xlsx", "onboarding.odt")
DAMAGES = st.lists(st.tuples(st.integers(0, 1_000_000), st.binary(min_size=1, max_size=8)), max_size=6)


@settings(max_examples=scale_examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(OFFICE_FILES), damages=DAMAGES, part_number=st.integers(0, 100))
def test_a_damaged_part_is_read_or_refused(
    name: str, damages: list[tuple[int, bytes]], part_number: int
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(FORMATS / name) as old, zipfile.ZipFile(content, "w") as new:
        parts = old.infolist()
        damaged = parts[part_number % len(parts)]
        for part in parts:
            data = old.read(part)
            if part is damaged:
                for position, replacement in damages:
                    at = position % (len(data) + 1)
                    data = data[:at] + replacement + data[at + len(replacement) :]
            new.writestr(part, data)
    try:
        _, parsed = read_in_process(RawDocument(name, content.getvalue()))
    except UnreadableDocument:
        return
    chunk_document(parsed)
    assert parsed.title
