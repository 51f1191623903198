"""What a skill brings in: every file is looked at before a skill can be used. A blocking finding keeps it
disabled."""

import re
from collections.abc import Iterator, Mapping

from ai_platform_engineering.core.skills import ScanFinding, Severity
from ai_platform_engineering.skills_middleware.file_rules import find_size_problems, to_printable
from ai_platform_engineering.skills_middleware.scan.hidden_characters import find_hidden_characters
from ai_platform_engineering.skills_middleware.scan.links import find_suspicious_links
from ai_platform_engineering.skills_middleware.scan.secrets import find_secrets, mask_secrets
from ai_platform_engineering.skills_middleware.scan.text_rules import find_rule_matches, flatten_text

_LONGEST_QUOTE = 60
_BLOB = re.compile(r"(?:[A-Za-z0-9+/]{40,}={0,2}\s{0,4}){1,}")
_MAX_BLOB = 400

_MAGIC = (
    (b"\x7fELF", "a program (ELF)"),
    (b"\xfe\xed\xfa\xce", "a program (Mach-O)"),
    (b"\xfe\xed\xfa\xcf", "a program (Mach-O)"),
    (b"\xce\xfa\xed\xfe", "a program (Mach-O)"),
    (b"\xcf\xfa\xed\xfe", "a program (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "a program (Mach-O or Java)"),
    (b"\0asm", "a program (WebAssembly)"),
    (b"PK\x03\x04", "an archive (zip)"),
    (b"PK\x05\x06", "an archive (zip)"),
    (b"\x1f\x8b", "an archive (gzip)"),
    (b"BZh", "an archive (bzip2)"),
    (b"\xfd7zXZ\0", "an archive (xz)"),
    (b"7z\xbc\xaf\x27\x1c", "an archive (7z)"),
    (b"Rar!\x1a\x07", "an archive (rar)"),
    (b"\x28\xb5\x2f\xfd", "an archive (zstd)"),
    (b"!<arch>\n", "an archive (ar)"),
    (b"MSCF\0", "an archive (cab)"),
)
_COMPILED = (".pyc", ".pyo", ".exe", ".dll", ".so", ".dylib", ".jar", ".class", ".msi", ".whl")


def scan_files(files: Mapping[str, bytes]) -> tuple[ScanFinding, ...]:
    """What was found, file by file; of the same kind the first place in a file, with how many there are."""
    findings = [
        _finding("oversized", "block", problem.file, None, problem.message)
        for problem in find_size_problems(_sizes(files))
    ]
    for path, content in sorted(files.items()):
        findings += _once_each(_in_file(to_printable(path), content))
    return tuple(findings)


def has_blocking(findings: tuple[ScanFinding, ...]) -> bool:
    return any(finding.severity == "block" for finding in findings)


def _sizes(files: Mapping[str, bytes]) -> dict[str, int]:
    return {path: len(content) for path, content in files.items()}


def _in_file(path: str, content: bytes) -> Iterator[ScanFinding]:
    if program := _program(path, content):
        yield _finding(
            "executable",
            "block",
            path,
            None,
            f"The file is {program}. Leave it out: a skill has texts and scripts.",
        )
        return
    if content.startswith(b"#!") and not path.startswith("scripts/"):
        yield _finding(
            "executable", "block", path, 1, "A script to run stands outside of scripts/. Move it there."
        )
    if b"\0" not in content:
        yield from _in_text(path, content.decode("utf-8", "replace").removeprefix("\ufeff"))


def _program(path: str, content: bytes) -> str | None:
    if path.lower().endswith(_COMPILED):
        return "a compiled program or an archive, by its name"
    if content[:2] == b"MZ" and b"\0" in content[:1024]:
        return "a program (PE)"
    if content[2:4] == b"\r\n" and b"\0" in content[4:16]:
        return "a compiled program (Python)"
    if content[257:262] == b"ustar":
        return "an archive (tar)"
    return next((what for magic, what in _MAGIC if content.startswith(magic)), None)


def _in_text(path: str, text: str) -> Iterator[ScanFinding]:
    safe = mask_secrets(text)

    def found(code: str, severity: Severity, at: int, message: str) -> ScanFinding:
        return _finding(code, severity, path, text.count("\n", 0, at) + 1, message)

    for one in find_hidden_characters(text):
        yield found("hidden-text", "block", one.position, f"The text holds {one.description}. Remove it.")
    for secret in find_secrets(text):
        yield found(
            "secret",
            "block",
            secret.position,
            f"Here stands {secret.description}. Remove it, and have it replaced: it is no secret any more.",
        )
    for match in find_rule_matches(flatten_text(text)):
        yield found(
            match.code,
            "block",
            match.position,
            f"{match.description}: “{_quoted(safe[match.position : match.end])}”. Reword or remove it.",
        )
    for link in find_suspicious_links(text):
        yield found(link.code, link.severity, link.position, link.message)
    for blob in _BLOB.finditer(text):
        if _is_encoded(blob[0]):
            yield found(
                "encoded-blob",
                "warn",
                blob.start(),
                "A long encoded text stands here, which nobody can review. Write it out.",
            )


def _is_encoded(text: str) -> bool:
    joined = "".join(text.split())
    mixed = all(re.search(kind, joined) for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    return len(joined) > _MAX_BLOB and mixed


def _quoted(text: str) -> str:
    plain = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    if len(plain) <= _LONGEST_QUOTE:
        return plain
    return f"{plain[: _LONGEST_QUOTE - 3]}..."


def _once_each(findings: Iterator[ScanFinding]) -> list[ScanFinding]:
    first: dict[str, ScanFinding] = {}
    count: dict[str, int] = {}
    for finding in findings:
        held = first.setdefault(finding.code, finding)
        if (finding.line or 0) < (held.line or 0):
            first[finding.code] = finding
        count[finding.code] = count.get(finding.code, 0) + 1
    more = {code: f" ({count[code]} places.)" if count[code] > 1 else "" for code in first}
    return [
        finding.model_copy(update={"message": finding.message + more[code]})
        for code, finding in first.items()
    ]


def _finding(code: str, severity: Severity, file: str, line: int | None, message: str) -> ScanFinding:
    return ScanFinding(code=code, severity=severity, file=file, line=line, message=message)
