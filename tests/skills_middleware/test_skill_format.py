"""SKILL.md by the public convention: what is read, what is refused and with which words, and what survives
being written."""

from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.skills import Skill, SkillFile
from ai_platform_engineering.skills_middleware.file_rules import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_SKILL_BYTES,
    MAX_SKILL_MD_BYTES,
    SkillErrors,
    SkillProblem,
    find_path_problem,
    is_expected,
)
from ai_platform_engineering.skills_middleware.skill_md import compute_version, parse_skill

WHOLE = """---
name: sync-failure
description: >-
  Finds out why an application does not sync.
  Use it when Argo CD reports OutOfSync.
license: Apache-2.0
compatibility: needs the argocd agent
metadata:
  author: platform-team
  version: 1.0
allowed-tools: argocd search Bash(git add:*)
---

# Why it does not sync

1. Look.
"""


def minimal(top: str = "", body: str = "Look.", name: str = "a-skill") -> str:
    return f"---\nname: {name}\ndescription: A skill.\n{top}---\n\n{body}\n"


def problems(text: str | bytes, folder: str | None = None, **more: bytes) -> list[SkillProblem]:
    files = {"SKILL.md": text.encode() if isinstance(text, str) else text, **more}
    with pytest.raises(SkillErrors) as caught:
        parse_skill(files, folder)
    assert all(
        problem.message.endswith(".") and str(problem) in str(caught.value)
        for problem in caught.value.problems
    )
    return list(caught.value.problems)


def test_everything_that_the_convention_has_is_read() -> None:
    files = {
        "SKILL.md": WHOLE.encode(),
        "references/states.md": b"# States",
        "scripts/look.sh": b"date",
        "assets/a/b/c.svg": b"<svg/>",
        "LICENSE": b"...",
    }
    skill = parse_skill(files, "sync-failure")
    assert skill == Skill(
        name="sync-failure",
        description="Finds out why an application does not sync. Use it when Argo CD reports OutOfSync.",
        body="# Why it does not sync\n\n1. Look.",
        version=compute_version(files),
        license="Apache-2.0",
        compatibility="needs the argocd agent",
        metadata={"author": "platform-team", "version": "1.0"},
        allowed_tools=("argocd", "search", "Bash(git add:*)"),
        files=tuple(
            SkillFile(path=path, size=len(files[path])) for path in sorted(files) if path != "SKILL.md"
        ),
    )


@pytest.mark.parametrize(
    "written",
    [
        "[argocd, search]",
        "argocd search",
        "argocd, search",
        "\n  - argocd\n  - search",
        "argocd argocd search",
    ],
)
def test_allowed_tools_are_a_list_or_words(written: str) -> None:
    assert parse_skill({"SKILL.md": minimal(f"allowed-tools: {written}\n").encode()}).allowed_tools == (
        "argocd",
        "search",
    )


@pytest.mark.parametrize("written", ["", "[]", "''", "~", "' , '"])
def test_no_allowed_tool_is_not_taken_for_every_tool(written: str) -> None:
    (problem,) = problems(minimal(f"allowed-tools: {written}\n"))
    assert (problem.field, problem.line) == ("allowed-tools", 4)
    assert "leave the field out" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        minimal().replace("\n", "\r\n"),
        "\ufeff" + minimal(),
        minimal().replace("---\n", "---  \n"),
        minimal().rstrip("\n"),
    ],
)
def test_how_a_file_was_saved_does_not_matter(text: str) -> None:
    skill = parse_skill({"SKILL.md": text.encode()})
    assert (skill.name, skill.description, skill.body) == ("a-skill", "A skill.", "Look.")


# --- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["A-skill", "a_skill", "-a", "a-", "a--b", "a b", "ä", "a" * 65, "a/b", "..", "a\\n", "incident.triage"],
)
def test_a_name_that_is_none(name: str) -> None:
    (problem,) = problems(minimal(name=name))
    assert (problem.file, problem.field, problem.line) == ("SKILL.md", "name", 2)


@pytest.mark.parametrize("name", ["a", "a-b", "1", "a1-2b", "a" * 64])
def test_a_name_that_is_one(name: str) -> None:
    assert parse_skill({"SKILL.md": minimal(name=name).encode()}, name).name == name


def test_the_name_is_that_of_the_folder() -> None:
    (problem,) = problems(minimal(), "another")
    assert problem.field == "name"
    assert "another" in problem.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# Only text", 1, "begin with front matter"),
        ("", 1, "begin with front matter"),
        ("\n---\nname: a\n---\n", 1, "begin with front matter"),
        ("---\nname: a\ndescription: b\n", 1, "not closed"),
        ("---\nname: a\ndescription: b: c\n---\n", 3, "not valid YAML"),
        ("---\nname: [a\n---\n", 3, "not valid YAML"),
        ("---\n- a\n---\n", 2, "must have fields"),
        ("---\n---\nbody", 2, "must have fields"),
        ("---\nname: a\nname: b\n---\n", 3, "written twice"),
        ("---\nname: &x a\ndescription: *x\n---\n", 3, "aliases"),
        ("---\nname: a\nmetadata: {a: {b: {c: d}}}\n---\n", 3, "nested too deep"),
        ("---\n? [a]\n: b\n---\n", 2, "key must be text"),
        ("---\nname: a\x07\n---\n", 1, "control character"),
        ("---\nname: a\ndescription: b\n---\n\nx\0", 6, "NUL"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, line: int, message: str) -> None:
    (problem,) = problems(text)
    assert (problem.file, problem.line) == ("SKILL.md", line)
    assert message in problem.message


def test_every_wrong_field_is_named_at_once() -> None:
    top = f"compatibility: {'x' * 501}\nmetadata: text\nallowed-tools: {{a: b}}\nlicense: [a]\n"
    field_problems = problems(f"---\nname: A\ndescription: {'x' * 1025}\n{top}---\n")
    assert {(problem.field, problem.line) for problem in field_problems} == {
        ("name", 2),
        ("description", 3),
        ("compatibility", 4),
        ("metadata", 5),
        ("allowed-tools", 6),
        ("license", 7),
    }
    assert [problem.field for problem in problems("---\nlicense: x\n---\n")] == ["name", "description"]
    assert [problem.field for problem in problems("---\nname: a\ndescription: '  '\n---\n")] == [
        "description"
    ]
    assert parse_skill(
        {"SKILL.md": f"---\nname: a\ndescription: {'x' * 1024}\ncompatibility: {'x' * 500}\n---\n".encode()}
    )


def test_metadata_is_texts() -> None:
    assert problems(minimal("metadata: {a: [b]}\n"))[0].field == "metadata"
    assert problems(minimal("metadata: {a: b, a: c}\n"))[0].field == "metadata"
    assert parse_skill(
        {"SKILL.md": minimal("metadata: {a: true, b: 2, c: , d: 2024-01-01}\n").encode()}
    ).metadata == {"a": "true", "b": "2", "c": "", "d": "2024-01-01"}


def test_a_file_that_is_missing_or_no_text() -> None:
    for files, message in (
        ({}, "Add a SKILL.md"),
        ({"skill.md": b""}, "Rename skill.md"),
        ({"SKILL.md": b"\xff\xfe"}, "UTF-8"),
    ):
        with pytest.raises(SkillErrors, match=message):
            parse_skill(files)


def test_limits_of_size_number_and_depth() -> None:
    main = minimal().encode()
    fits: dict[str, bytes] = {
        "SKILL.md": main + b"x" * (MAX_SKILL_MD_BYTES - len(main)),
        "assets/a": b"x" * MAX_FILE_BYTES,
        "references/a/b/c": b"",
    }
    assert parse_skill(fits)
    many = {f"assets/{number}": b"" for number in range(MAX_FILES - 1)}
    assert parse_skill({"SKILL.md": main, **many})
    wrong: list[tuple[str, Mapping[str, bytes]]] = [
        ("64 KB", {"SKILL.md": fits["SKILL.md"] + b"x"}),
        ("256 KB", {"SKILL.md": main, "assets/a": b"x" * (MAX_FILE_BYTES + 1)}),
        (
            "2048 KB",
            {
                "SKILL.md": main,
                **{
                    f"assets/{number}": b"x" * MAX_FILE_BYTES
                    for number in range(MAX_SKILL_BYTES // MAX_FILE_BYTES)
                },
            },
        ),
        (f"has {MAX_FILES + 1} files", {"SKILL.md": main, **many, "assets/more": b""}),
        (f"at most {MAX_DEPTH} parts", {"SKILL.md": main, "references/a/b/c/d": b""}),
    ]
    for message, files in wrong:
        with pytest.raises(SkillErrors, match=message):
            parse_skill(files)


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "assets/../../x",
        "/etc/passwd",
        "C:/x",
        "a\\b",
        "assets//x",
        "assets/.",
        "a\0b",
        "a\nb",
        "",
        "x" * 256,
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(SkillErrors):
        parse_skill({"SKILL.md": minimal().encode(), path: b""})


@given(st.text(max_size=40))
def test_a_path_that_passes_stays_below(path: str) -> None:
    if find_path_problem(path) is None:
        parts = path.split("/")
        assert all(part not in ("", ".", "..") for part in parts)
        assert "\\" not in path
        assert path.isprintable() or not path.isascii()
        assert path.encode()


# --- what is odd ----------------------------------------------------------------------------------------


def odd(files: Mapping[str, bytes]) -> list[tuple[str, str, int | None]]:
    findings = parse_skill(files).findings
    assert all(finding.severity == "warn" for finding in findings)
    return [(finding.code, finding.file, finding.line) for finding in findings]


def test_what_is_odd_is_a_warning() -> None:
    assert odd({"SKILL.md": minimal().encode()}) == []
    assert odd({"SKILL.md": minimal("tools: x\nmodel: y\n").encode()}) == [
        ("unknown-field", "SKILL.md", 4),
        ("unknown-field", "SKILL.md", 5),
    ]
    assert odd({"SKILL.md": minimal(body="").encode()}) == [("empty-body", "SKILL.md", None)]
    assert odd({"SKILL.md": minimal(body="\n".join(["x"] * 500)).encode()}) == []
    assert odd({"SKILL.md": minimal(body="\n".join(["x"] * 501)).encode()}) == [
        ("long-body", "SKILL.md", 506)
    ]


def test_files_without_a_place_are_kept_from_the_model() -> None:
    files = {
        "SKILL.md": minimal().encode(),
        "README.md": b"",
        "src/x.py": b"",
        "references": b"",
        "LICENSE.txt": b"",
        "references/SKILL.md": b"",
    }
    assert {file for _, file, _ in odd(files)} == {"README.md", "src/x.py", "references"}
    assert [file.path for file in parse_skill(files).files] == ["LICENSE.txt", "references/SKILL.md"]
    assert not is_expected("SKILL.md")


# --- versions and writing -------------------------------------------------------------------------------


def test_the_version_tells_files_apart() -> None:
    files = {"SKILL.md": b"a", "assets/x": b"b"}
    version = compute_version(files)
    assert len(version) == 12
    assert int(version, 16) >= 0
    assert version == compute_version(dict(reversed(files.items())))
    others = [
        {"SKILL.md": b"a"},
        {**files, "assets/x": b"c"},
        {"SKILL.md": b"a", "assets/y": b"b"},
        {"SKILL.md": b"aassets/xb"},
        {"SKILL.md": b"ab", "assets/x": b""},
    ]
    assert len({version, *map(compute_version, others)}) == 1 + len(others)


def plain(longest: int) -> st.SearchStrategy[str]:
    return st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufeff\ufffe\uffff"),
        max_size=longest,
    ).map(str.strip)


@given(
    name=st.from_regex(r"[a-z0-9]{1,5}(-[a-z0-9]{1,5}){0,4}", fullmatch=True),
    description=plain(200).filter(bool),
    licence=plain(60),
    metadata=st.dictionaries(plain(20).filter(bool), plain(40), max_size=4),
    tools=st.lists(st.from_regex(r"[a-z_*/-]{1,12}", fullmatch=True), unique=True, max_size=4),
    body=plain(200),
)
def test_what_is_written_is_read_back(
    name: str, description: str, licence: str, metadata: dict[str, str], tools: list[str], body: str
) -> None:
    skill = Skill(
        name=name,
        description=description,
        body=body,
        version="0" * 12,
        license=licence or None,
        metadata=metadata,
        allowed_tools=tuple(tools),
    )
    fields = {
        "name": name,
        "description": description,
        "license": licence,
        "metadata": metadata,
        "allowed-tools": " ".join(tools),
    }
    front_matter = yaml.safe_dump({key: value for key, value in fields.items() if value}, allow_unicode=True)
    again = parse_skill({"SKILL.md": f"---\n{front_matter}---\n\n{body.strip()}\n".encode()}, name)
    assert again.model_copy(update={"version": skill.version, "findings": ()}) == skill
