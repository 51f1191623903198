"""Programming languages by file name, and the lines where their definitions begin."""

import re

_EXTENSIONS = {
    "Python": "py pyi pyw",
    "JavaScript": "js mjs cjs jsx",
    "TypeScript": "ts tsx mts cts",
    "Go": "go",
    "Rust": "rs",
    "Java": "java",
    "Kotlin": "kt kts",
    "Scala": "scala sc",
    "Groovy": "groovy gradle",
    "C": "c h",
    "C++": "cc cpp cxx hpp hh hxx",
    "C#": "cs",
    "Swift": "swift",
    "Ruby": "rb rake gemspec",
    "PHP": "php",
    "Perl": "pl pm",
    "Lua": "lua",
    "R": "r",
    "Elixir": "ex exs",
    "Erlang": "erl hrl",
    "Haskell": "hs",
    "Clojure": "clj cljs",
    "Shell": "sh bash zsh ksh fish",
    "PowerShell": "ps1 psm1",
    "Batch": "bat cmd",
    "SQL": "sql",
    "Terraform": "tf tfvars hcl",
    "Protocol Buffers": "proto",
    "GraphQL": "graphql gql",
    "Rego": "rego",
    "Jsonnet": "jsonnet libsonnet",
    "CUE": "cue",
    "Starlark": "bzl star",
    "Dart": "dart",
    "Vue": "vue",
    "Svelte": "svelte",
    "CSS": "css scss less sass",
    "XML": "xml xsd xsl wsdl pom svg",
    "JSON": "json jsonc json5 geojson ipynb",
    "YAML": "yaml yml",
    "TOML": "toml",
    "INI": "ini cfg conf properties env editorconfig",
    "Makefile": "mk mak",
    "Dockerfile": "dockerfile",
    "Diff": "diff patch",
    "Template": "tpl tmpl j2 jinja jinja2 mustache",
}
_BY_EXTENSION = {
    extension: language for language, extensions in _EXTENSIONS.items() for extension in extensions.split()
}
_BY_NAME = {
    "makefile": "Makefile", "gnumakefile": "Makefile", "dockerfile": "Dockerfile",
    "containerfile": "Dockerfile", "jenkinsfile": "Groovy",
    "rakefile": "Ruby", "gemfile": "Ruby", "vagrantfile": "Ruby", "tiltfile": "Starlark",
    "build": "Starlark", "justfile": "Makefile",
    "codeowners": "INI", ".gitignore": "INI", ".dockerignore": "INI", ".editorconfig": "INI", ".env": "INI",
}  # fmt: skip
_INTERPRETERS = {
    "python": "Python", "node": "JavaScript", "deno": "TypeScript", "ruby": "Ruby", "perl": "Perl",
    "php": "PHP", "lua": "Lua",
    "bash": "Shell", "sh": "Shell", "zsh": "Shell", "ksh": "Shell", "fish": "Shell", "pwsh": "PowerShell",
    "rscript": "R",
}  # fmt: skip
_SHEBANG = re.compile(r"#!\s{0,4}(?:\S{0,80}/)?(?:env\s+(?:-S\s+)?)?([A-Za-z]+)")

DATA_FORMATS = frozenset({"json", "yaml", "toml", "xml"})

_WORDS_BEFORE = (
    "export|default|public|private|protected|internal|static|final|abstract|async|pub|unsafe|extern|inline|open|sealed|data|override|"
    "virtual|partial|declare|suspend|const|local|readonly|implicit|case"
)
_DEFINING_WORDS = (
    "func|function|fn|fun|def|defp|defmodule|defmacro|class|struct|enum|union|interface|trait|impl|type|module|namespace|object|record|"
    "protocol|extension|resource|variable|output|provider|locals|terraform|moved|message|service|rpc|mutation|query|schema|input|scalar|"
    "contract|sub|proc|macro_rules!|template|describe|test|package"
)
_DEFINITION = re.compile(
    rf"(?:(?:{_WORDS_BEFORE})(?:\([^)]{{0,60}}\))?\s{{1,8}}){{0,6}}(?:{_DEFINING_WORDS})\b"
)
_OPENING = re.compile(
    r"(?!(?:if|else|for|while|switch|try|catch|finally|do|return|begin|with|loop|match|select)\b)[A-Za-z_@$*&<.#][^;]{0,400}[{(]$"
)
_BY_LANGUAGE = {
    "SQL": re.compile(r"(?:create|alter|drop|insert|grant|begin|declare)\b", re.IGNORECASE),
    "Makefile": re.compile(r"[\w./%$(){} -]{1,120}::?(?!=)"),
    "Dockerfile": re.compile(r"from\b", re.IGNORECASE),
    "TOML": re.compile(r"\["),
    "INI": re.compile(r"\["),
    "YAML": re.compile(r"---"),
    "Diff": re.compile(r"(?:diff|Index:)\s"),
    "Haskell": re.compile(r"(?:data|newtype|type|class|instance|module)\b|[a-z][\w']{0,60}\s{1,4}::"),
    "Erlang": re.compile(r"[a-z]\w{0,60}\("),
    "Clojure": re.compile(r"\(def"),
    "R": re.compile(r"[\w.]{1,60}\s{0,4}(?:<-|=)\s{0,4}function"),
}
_WITHOUT_DEFINITIONS = frozenset({"JSON", "XML", "CSS", "Template", "Vue", "Svelte", "Batch"})


def detect_language(name: str, beginning: str = "") -> str:
    """The language of a file by its name, or by its first line when the name says nothing."""
    lowered = name.lower()
    stem, _, extension = lowered.rpartition(".")
    language = _BY_NAME.get(lowered) or _BY_NAME.get(stem, "")
    if not language and stem:
        language = _BY_EXTENSION.get(extension, "")
    if language or "." in lowered.strip("."):
        return language
    shebang = _SHEBANG.match(beginning)
    if shebang:
        return _INTERPRETERS.get(shebang[1].lower(), "")
    return ""


def begins_definition(line: str, language: str) -> bool:
    """Whether a line without indentation begins a definition."""
    if language in _WITHOUT_DEFINITIONS:
        return False
    own = _BY_LANGUAGE.get(language)
    if own is not None:
        return own.match(line) is not None
    return _DEFINITION.match(line) is not None or _OPENING.match(line) is not None
