"""What a skill brings in: every file is looked at before a skill can be used. A blocking finding keeps it
disabled."""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import sha256

from ai_platform_engineering.core.skills import ScanFinding, Severity
from ai_platform_engineering.skills_middleware.file_rules import find_size_problems, to_printable
from ai_platform_engineering.skills_middleware.scan.hidden_characters import find_hidden_characters
from ai_platform_engineering.skills_middleware.scan.links import find_suspicious_links
from ai_platform_engineering.skills_middleware.scan.secrets import find_secrets, mask_secrets
from ai_platform_engineering.skills_middleware.scan.text_rules import find_rule_matches, flatten_text

_MAX_QUOTE = 60
_ENCODED_TEXT = re.compile(r"(?:[A-Za-z0-9+/]{40,}+={0,2}+\s{0,4}+)++")
_MAX_ENCODED_LENGTH = 400
_RECENT_SCANS = 1000  # files

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
_COMPILED_SUFFIXES = (".pyc", ".pyo", ".exe", ".dll", ".so", ".dylib", ".jar", ".class", ".msi", ".whl")


def scan_files(files: Mapping[str, bytes]) -> tuple[ScanFinding, ...]:
    """The findings file by file; of each code the first one in a file, with how many there are."""
    sizes = {path: len(content) for path, content in files.items()}
    findings: list[ScanFinding] = []
    for problem in find_size_problems(sizes):
        findings.append(_finding("oversized", "block", problem.file, None, problem.message))
    for path, content in sorted(files.items()):
        findings += _recent_scans.scan(to_printable(path), content)
    return tuple(findings)


def has_blocking(findings: tuple[ScanFinding, ...]) -> bool:
    return any(finding.severity == "block" for finding in findings)


class _RecentScans:
    """The findings in files that were scanned lately: sources are read again and again, and seldom change."""

    def __init__(self) -> None:
        self._findings: OrderedDict[tuple[str, bytes], list[ScanFinding]] = OrderedDict()

    def scan(self, path: str, content: bytes) -> list[ScanFinding]:
        key = (path, sha256(content).digest())
        findings = self._findings.pop(key, None)
        if findings is None:
            findings = _merge_by_code(_scan_file(path, content))
        self._findings[key] = findings  # the latest come last
        while len(self._findings) > _RECENT_SCANS:
            self._findings.popitem(last=False)
        return findings


_recent_scans = _RecentScans()


def _scan_file(path: str, content: bytes) -> Iterator[ScanFinding]:
    if program := _detect_program(path, content):
        message = f"The file is {program}. Leave it out: a skill has texts and scripts."
        yield _finding("executable", "block", path, None, message)
        return
    if content.startswith(b"#!") and not path.startswith("scripts/"):
        message = "A script to run stands outside of scripts/. Move it there."
        yield _finding("executable", "block", path, 1, message)
    if b"\0" not in content:
        yield from _scan_text(path, content.decode("utf-8", "replace").removeprefix("\ufeff"))


def _detect_program(path: str, content: bytes) -> str | None:
    """What kind of program or archive a file is; None when it is none."""
    if path.lower().endswith(_COMPILED_SUFFIXES):
        return "a compiled program or an archive, by its name"
    if content[:2] == b"MZ" and b"\0" in content[:1024]:
        return "a program (PE)"
    if content[2:4] == b"\r\n" and b"\0" in content[4:16]:
        return "a compiled program (Python)"
    if content[257:262] == b"ustar":
        return "an archive (tar)"
    for magic, description in _MAGIC:
        if content.startswith(magic):
            return description
    return None


def _scan_text(path: str, text: str) -> Iterator[ScanFinding]:
    masked_text = mask_secrets(text)

    def finding_at(position: int, code: str, severity: Severity, message: str) -> ScanFinding:
        return _finding(code, severity, path, text.count("\n", 0, position) + 1, message)

    for character in find_hidden_characters(text):
        message = f"The text contains {character.description}. Remove it."
        yield finding_at(character.position, "hidden-text", "block", message)
    for secret in find_secrets(text):
        message = f"The text contains {secret.description}. Remove it and rotate it: it is no longer secret."
        yield finding_at(secret.position, "secret", "block", message)
    for match in find_rule_matches(flatten_text(text)):
        quote = _shorten_quote(masked_text[match.position : match.end])
        message = f"{match.description}: “{quote}”. Reword or remove it."
        yield finding_at(match.position, match.code, "block", message)
    for link in find_suspicious_links(text):
        yield finding_at(link.position, link.code, link.severity, link.message)
    for candidate in _ENCODED_TEXT.finditer(text):
        if _is_encoded(candidate[0]):
            message = "A long encoded text stands here, which nobody can review. Write it out."
            yield finding_at(candidate.start(), "encoded-blob", "warn", message)


def _is_encoded(text: str) -> bool:
    joined = "".join(text.split())
    has_all_kinds = all(re.search(kind, joined) for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    return len(joined) > _MAX_ENCODED_LENGTH and has_all_kinds


def _shorten_quote(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    quote = " ".join(printable.split())
    if len(quote) <= _MAX_QUOTE:
        return quote
    return f"{quote[: _MAX_QUOTE - 3]}..."


def _merge_by_code(findings: Iterator[ScanFinding]) -> list[ScanFinding]:
    """The finding with the lowest line of each code, with the number of places when there are several."""
    first: dict[str, ScanFinding] = {}
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.code] += 1
        first_finding = first.setdefault(finding.code, finding)
        if (finding.line or 0) < (first_finding.line or 0):
            first[finding.code] = finding
    merged: list[ScanFinding] = []
    for code, finding in first.items():
        message = finding.message
        if counts[code] > 1:
            message += f" ({counts[code]} places.)"
        merged.append(finding.model_copy(update={"message": message}))
    return merged


def _finding(code: str, severity: Severity, file: str, line: int | None, message: str) -> ScanFinding:
    return ScanFinding(code=code, severity=severity, file=file, line=line, message=message)
