"""Sentences and commands that no skill needs: to send secrets away, to switch approvals off, to turn from
instructions, to hide.

A rule reads orders, not descriptions: what is forbidden ("never send …") and what somebody else does ("the proxy skips …") is let
through. A skill that is blocked wrongly can be reworded; a sentence that gets past is still held by approvals and allowed tools.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from ai_platform_engineering.skills_middleware.scan.phrases import compile_phrase, word_class

_FILE = (
    r"(?:\.aws/credentials|\.kube/config|kubeconfig|\.ssh/id_\w+|\.netrc|/etc/shadow|serviceaccount/token"
    r"|\.docker/config\.json|(?<![\w)])\.env|/proc/self/environ)\b"
)
_DOMAIN = (
    r"(?:[\w-]+\.){1,5}(?:com|net|org|io|dev|app|xyz|ru|cn|top|site|online|me|co|info|cloud|tk|cc|biz|club)"
)

_CLASSES = {
    "send": word_class(
        "send post upload forward transmit exfiltrate leak submit deliver paste ship publish report e-mail email mail relay",
        "s ing",
    ),
    "toward": word_class("to at via into toward towards on using"),
    "secret": _FILE
    + "|"
    + word_class(
        "secret token credential password passphrase api_key access_key private_key ssh_key signing_key session_cookie",
        "s",
    )
    + r"|kube-?config\w*|env(?:ironment)?[\s_-]+(?:var(?:iable)?s?|values|dump)|(?:contents of|entire|whole|full|your|the|its) environment",
    "place": r"(?:https?|ftp|wss?)://(?!localhost|127\.|\[::1\])\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:\d{1,3}\.){3}\d{1,3}|"
    + _DOMAIN
    + "|"
    + word_class("webhook web_hook pastebin gist", "s")
    + r"|(?:external|remote|outside|attacker'?s?|third[\s-]party)\s+"
    + word_class("server host endpoint address site service url", "s"),
    "off": word_class(
        "disable skip bypass suppress circumvent evade deactivate turn_off switch_off work_around remove", "s"
    ),
    "any": word_class(
        "the all any every each these those required needed tool user user's manual human explicit further an a this of your its"
    ),
    "approval": word_class(
        "approval permission human_review human_oversight guardrail guard_rail safety_check safety_rule", "s"
    )
    + r"|human[\s-]in[\s-]the[\s-]loop",
    "consent": word_class("approval confirmation permission consent", "s"),
    "without-asking": r"without (?:ever )?"
    + word_class("asking waiting requesting seeking prompting needing getting requiring"),
    "people": r"(?:(?:the|any|your|a|end)\s+){0,2}"
    + word_class("user human person people operator reviewer anyone anybody customer", "s"),
    "do-not": r"do not(?: ever)?|don't(?: ever)?|never|must not|should not|no need to",
    "ignore": word_class("ignore disregard forget discard override neglect"),
    "earlier": word_class(
        "previous prior earlier above preceding system developer original initial existing safety"
    ),
    "instructions": word_class("instruction prompt guideline directive constraint guardrail", "s") + "|rules",
    "act": r"this|it|that|these|those|them|anything|what you (?:do|did)|(?:the|this|these|your) (?:\w+ )?"
    + word_class("step call action skill instruction command upload request transfer change deletion", "s"),
    "on-behalf": word_class("on_the_user's_behalf on_my_behalf on_their_behalf in_the_user's_name"),
    "answer": word_class("answer response reply output summary report"),
    "call": r"(?:own |tool |pending )*"
    + word_class("request call action tool form step", "s")
    + "|everything",
}


@dataclass(frozen=True, slots=True)
class RuleMatch:
    code: str
    description: str
    position: int
    end: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """`needs`: tried only on texts with one of these in them. `order`: only where an order can begin.
    `forgiven`: not in a sentence that forbids it."""

    code: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    order: bool
    forgiven: bool


def _says(code: str, needs: str, text: str, *, order: bool = False, forgiven: bool = True) -> _Rule:
    return _Rule(code, tuple(needs.split()), compile_phrase(text, _CLASSES), order, forgiven)


def _runs(needs: str, pattern: str) -> _Rule:
    return _Rule("exfiltration", tuple(needs.split()), re.compile(pattern), order=False, forgiven=False)


_SECRET_NEEDS = "secret token credential pass key cookie kube env .aws .ssh .netrc shadow"
_CONSENT_NEEDS = "approval confirmation permission consent"
_INSTRUCTION_NEEDS = "instruction prompt guideline directive constraint guardrail rules"
_MENTION = "mention show reveal disclose report"
_DUMP = (
    rf"(?:\bprintenv\b|(?<![\w/.-])env\b(?!\s+\w+=)|\bcat\s+\S{{0,80}}{_FILE}|\bkubectl\s+get\s+secrets?\b)"
)
_RULES = (
    _says("exfiltration", _SECRET_NEEDS, "<send> ..40 <secret> ..80 <toward> ..25 <place>"),
    _says("approvals", "approval permission review oversight guard safety loop", "<off> <any>? <approval>", order=True),
    _says("approvals", "approval", "turn|switch|set <any>? approvals|approval ..12 off|none|never|false|disabled", order=True),
    _says("approvals", "without", "<without-asking> <people>? for? <any>? <consent>"),
    _says("approvals", _CONSENT_NEEDS, "<do-not> ask|wait|prompt|request|seek <people>? for? <any>? <consent>", forgiven=False),
    _says("self-approval", "yourself behalf", "approve|accept|authorize|confirm ..50 yourself|<on-behalf>", order=True),
    _says("self-approval", "approve", "auto-approve|automatically_approve|always_approve <any>? <call>", order=True),
    _says("self-approval", "approval", "answer|resolve <any>? approval|approvals requests|request? yourself|for_the_user|with_yes"),
    _says("instruction-override", _INSTRUCTION_NEEDS, "<ignore> about? <any>? my? <earlier> system|safety? <instructions>"),
    _says("instruction-override", _INSTRUCTION_NEEDS, "ignore|disregard|forget <any>? your <instructions>"),
    _says("instruction-override", "told", "ignore|disregard|forget everything|all|anything|what that? you were|are|have been? told"),
    _says("instruction-override", "longer", "you are no_longer bound|restricted|limited|subject"),
    _says("concealment", "tell inform notify alert", "<do-not> tell|inform|notify|alert <people> anything? about|of <act>", forgiven=False),
    _says("concealment", "tell inform notify alert", "<do-not> tell|inform|notify|alert <people> that you", forgiven=False),
    _says("concealment", _MENTION, "<do-not> mention|show|reveal|disclose|report <act> to <people>", forgiven=False),
    _says("concealment", _MENTION, "<do-not> mention|reveal|disclose|report <act> in the|your|any <answer>", forgiven=False),
    _says("concealment", "without", "without telling|informing|notifying|alerting <people>"),
    _says("concealment", "hide conceal keep", "hide|conceal|keep <act> ..30 from <people>", order=True),
    _says("concealment", "secretly covertly", "secretly|covertly <send>|run|execute|delete|change|copy|call|collect|install|approve"),
    _runs("curl wget nc socat", rf"{_DUMP}[^\n|]{{0,80}}\|\s*(?:[^\n|]{{1,60}}\|\s*){{0,2}}(?:curl|wget|nc|ncat|socat)\b"),
    _runs("curl wget scp", rf"\b(?:curl|wget|scp)\b[^\n]{{0,200}}?(?:@\S{{0,80}}{_FILE}|\$\(\s*{_DUMP}|\s\S{{0,80}}{_FILE}\s+\S+@)"),
    _runs("post( put( urlopen(", rf"\.(?:post|put|urlopen)\([^\n]{{0,200}}?(?:(?:os\.environ|process\.env)\b(?!\s*[\[.])|{_FILE})"),
)  # fmt: skip

_WHAT = {
    "exfiltration": "It tells to send secrets away",
    "approvals": "It tells to work around approvals",
    "self-approval": "It tells to approve in the place of a person",
    "instruction-override": "It tells to turn from the instructions in force",
    "concealment": "It tells to hide from people what is done",
}
_ORDERED = re.compile(
    r"(?:^|[.!?:;()\n#-]|\d[.)]|\b(?:and|or|then|please|must|should|shall|always|to|can|just|now|will|you|not only))[\s,]*$",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(
    r"\b(?:never|not|no one|nobody|cannot|avoid|refuse[sd]?|forbidden|prohibited|prevents?|detects?|nothing)\b|n't\b",
    re.IGNORECASE,
)
_ENCOURAGED = re.compile(r"(?:never|not|n't)\s+(?:forget|fail|hesitate|only|worry)", re.IGNORECASE)
_LATER = re.compile(r"\b(?:until|before|unless|if|yet)\b", re.IGNORECASE)
_WINDOW, _OVERLAP = 4096, 512
_MARKS = str.maketrans({"*": " ", "`": " ", ">": " ", "\u2019": "'", "\u00a0": " "})


def flatten_text(text: str) -> str:
    """The text as a reader hears it: wrapped lines joined, marks of Markdown and fancy letters plain.
    Positions stay."""
    if not text.isascii():
        text = "".join(
            plain if len(plain := unicodedata.normalize("NFKC", one)) == 1 else one for one in text
        )
    # A line that begins anew (a list, a heading, an empty line) ends a sentence; any other goes on.
    return re.sub(
        r"(?<=[\w,;)\"'])[ \t]*\n(?=[ \t]*[A-Za-z(\"'])",
        _as_long,
        text.replace("\\\n", "  ").translate(_MARKS),
    )


def _as_long(found: re.Match[str]) -> str:
    return " " * len(found[0])


def find_rule_matches(text: str) -> Iterator[RuleMatch]:
    """`text` is flattened."""
    lowered = text.lower()
    for rule in _RULES:
        if any(word in lowered for word in rule.needs):
            for found in _windowed(rule.pattern, text):
                if _meant(rule, text, found):
                    yield RuleMatch(rule.code, _WHAT[rule.code], found.start(), found.end())


def _windowed(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """In pieces: one search of a long text would keep every other thread waiting until its end."""
    for start in range(0, len(text), _WINDOW):
        for found in pattern.finditer(text, start, start + _WINDOW + _OVERLAP):
            if found.start() < start + _WINDOW:
                yield found


def _meant(rule: _Rule, text: str, found: re.Match[str]) -> bool:
    before = re.split(r"[.!?]\s|\n", text[max(0, found.start() - 120) : found.start()])[-1]
    if rule.order and not _ORDERED.search(before):
        return False
    if rule.forgiven:
        return not _FORBIDDEN.search(before) or bool(_ENCOURAGED.search(before))
    after = re.split(r"[.!?]\s|\n", text[found.end() : found.end() + 160])[0]
    return rule.code != "concealment" or not _LATER.search(
        after
    )  # "do not tell the user that you fixed it before it is checked"
