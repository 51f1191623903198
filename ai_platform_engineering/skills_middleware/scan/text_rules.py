"""Rules against sentences and commands that no skill needs: to exfiltrate secrets, to switch approvals
off, to override instructions, to conceal actions from people.

A rule matches instructions, not descriptions: what is forbidden ("never send …") and what somebody else
does ("the proxy skips …") does not match. A skill that is blocked wrongly can be reworded; a sentence that no
rule matches is still limited by approvals and allowed tools.
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
        "send post upload forward transmit exfiltrate leak submit deliver paste ship publish report"
        " e-mail email mail relay",
        "s ing",
    ),
    "toward": word_class("to at via into toward towards on using"),
    "secret": _FILE
    + "|"
    + word_class(
        "secret token credential password passphrase api_key access_key private_key ssh_key signing_key"
        " session_cookie",
        "s",
    )
    + r"|kube-?config\w*|env(?:ironment)?[\s_-]+(?:var(?:iable)?s?|values|dump)"
    + r"|(?:contents of|entire|whole|full|your|the|its) environment",
    "place": r"(?:https?|ftp|wss?)://(?!localhost|127\.|\[::1\])\S+"
    + r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:\d{1,3}\.){3}\d{1,3}|"
    + _DOMAIN
    + "|"
    + word_class("webhook web_hook pastebin gist", "s")
    + r"|(?:external|remote|outside|attacker'?s?|third[\s-]party)\s+"
    + word_class("server host endpoint address site service url", "s"),
    "off": word_class(
        "disable skip bypass suppress circumvent evade deactivate turn_off switch_off work_around remove", "s"
    ),
    "any": word_class(
        "the all any every each these those required needed tool user user's manual human explicit further"
        " an a this of your its"
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
class _Window:
    """A part of a text, which overlaps with the next one."""

    start: int
    end: int
    lowered_text: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern with its conditions."""

    code: str
    keywords: tuple[str, ...]  # the pattern is tried only where one of them is near
    pattern: re.Pattern[str]
    needs_order: bool = False  # matches only where an instruction can begin
    allows_prohibition: bool = False  # does not match in a sentence that forbids it


def _phrase_rule(
    code: str, keywords: str, phrase: str, *, order: bool = False, prohibition: bool = True
) -> _Rule:
    pattern = compile_phrase(phrase, _CLASSES)
    return _Rule(code, tuple(keywords.split()), pattern, needs_order=order, allows_prohibition=prohibition)


def _command_rule(keywords: str, pattern: str) -> _Rule:
    return _Rule("exfiltration", tuple(keywords.split()), re.compile(pattern))


_SECRET_KEYWORDS = "secret token credential pass key cookie kube env .aws .ssh .netrc shadow"
_CONSENT_KEYWORDS = "approval confirmation permission consent"
_INSTRUCTION_KEYWORDS = "instruction prompt guideline directive constraint guardrail rules"
_MENTION_KEYWORDS = "mention show reveal disclose report"
_DUMP = (
    rf"(?:\bprintenv\b|(?<![\w/.-])env\b(?!\s+\w+=)|\bcat\s+\S{{0,80}}{_FILE}|\bkubectl\s+get\s+secrets?\b)"
)
_RULES = (
    _phrase_rule("exfiltration", _SECRET_KEYWORDS, "<send> ..40 <secret> ..80 <toward> ..25 <place>"),
    _phrase_rule(
        "approvals",
        "approval permission review oversight guard safety loop",
        "<off> <any>? <approval>",
        order=True,
    ),
    _phrase_rule(
        "approvals",
        "approval",
        "turn|switch|set <any>? approvals|approval ..12 off|none|never|false|disabled",
        order=True,
    ),
    _phrase_rule("approvals", "without", "<without-asking> <people>? for? <any>? <consent>"),
    _phrase_rule(
        "approvals",
        _CONSENT_KEYWORDS,
        "<do-not> ask|wait|prompt|request|seek <people>? for? <any>? <consent>",
        prohibition=False,
    ),
    _phrase_rule(
        "self-approval",
        "yourself behalf",
        "approve|accept|authorize|confirm ..50 yourself|<on-behalf>",
        order=True,
    ),
    _phrase_rule(
        "self-approval",
        "approve",
        "auto-approve|automatically_approve|always_approve <any>? <call>",
        order=True,
    ),
    _phrase_rule(
        "self-approval",
        "approval",
        "answer|resolve <any>? approval|approvals requests|request? yourself|for_the_user|with_yes",
    ),
    _phrase_rule(
        "instruction-override",
        _INSTRUCTION_KEYWORDS,
        "<ignore> about? <any>? my? <earlier> system|safety? <instructions>",
    ),
    _phrase_rule(
        "instruction-override", _INSTRUCTION_KEYWORDS, "ignore|disregard|forget <any>? your <instructions>"
    ),
    _phrase_rule(
        "instruction-override",
        "told",
        "ignore|disregard|forget everything|all|anything|what that? you were|are|have been? told",
    ),
    _phrase_rule("instruction-override", "longer", "you are no_longer bound|restricted|limited|subject"),
    _phrase_rule(
        "concealment",
        "tell inform notify alert",
        "<do-not> tell|inform|notify|alert <people> anything? about|of <act>",
        prohibition=False,
    ),
    _phrase_rule(
        "concealment",
        "tell inform notify alert",
        "<do-not> tell|inform|notify|alert <people> that you",
        prohibition=False,
    ),
    _phrase_rule(
        "concealment",
        _MENTION_KEYWORDS,
        "<do-not> mention|show|reveal|disclose|report <act> to <people>",
        prohibition=False,
    ),
    _phrase_rule(
        "concealment",
        _MENTION_KEYWORDS,
        "<do-not> mention|reveal|disclose|report <act> in the|your|any <answer>",
        prohibition=False,
    ),
    _phrase_rule("concealment", "without", "without telling|informing|notifying|alerting <people>"),
    _phrase_rule(
        "concealment", "hide conceal keep", "hide|conceal|keep <act> ..30 from <people>", order=True
    ),
    _phrase_rule(
        "concealment",
        "secretly covertly",
        "secretly|covertly <send>|run|execute|delete|change|copy|call|collect|install|approve",
    ),
    _command_rule(
        "curl wget nc socat",
        rf"{_DUMP}[^\n|]{{0,80}}\|\s*(?:[^\n|]{{1,60}}\|\s*){{0,2}}(?:curl|wget|nc|ncat|socat)\b",
    ),
    _command_rule(
        "curl wget scp",
        rf"\b(?:curl|wget|scp)\b[^\n]{{0,200}}?(?:@\S{{0,80}}{_FILE}|\$\(\s*{_DUMP}|\s\S{{0,80}}{_FILE}\s+\S+@)",
    ),
    _command_rule(
        "post( put( urlopen(",
        rf"\.(?:post|put|urlopen)\([^\n]{{0,200}}?(?:(?:os\.environ|process\.env)\b(?!\s*[\[.])|{_FILE})",
    ),
)

_DESCRIPTIONS = {
    "exfiltration": "It tells to send secrets away",
    "approvals": "It tells to work around approvals",
    "self-approval": "It asks to approve on behalf of a person",
    "instruction-override": "It tells to turn from the instructions in force",
    "concealment": "It tells to hide from people what is done",
}
_ORDER_START = re.compile(
    r"(?:^|[.!?:;()\n#-]|\d[.)]"
    r"|\b(?:and|or|then|please|must|should|shall|always|to|can|just|now|will|you|not only))[\s,]*$",
    re.IGNORECASE,
)
_PROHIBITION = re.compile(
    r"\b(?:never|not|no one|nobody|cannot|avoid|refuse[sd]?|forbidden|prohibited|prevents?|detects?"
    r"|nothing)\b|n't\b",
    re.IGNORECASE,
)
_ENCOURAGEMENT = re.compile(r"(?:never|not|n't)\s+(?:forget|fail|hesitate|only|worry)", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:until|before|unless|if|yet)\b", re.IGNORECASE)
_WINDOW = 4096
_OVERLAP = 512
_PLAIN_CHARACTERS = str.maketrans({"*": " ", "`": " ", ">": " ", "\u2019": "'", "\u00a0": " "})


def flatten_text(text: str) -> str:
    """The text with wrapped lines joined, marks of Markdown removed and letter variants normalised.
    Positions stay."""
    if not text.isascii():
        text = "".join(map(_normalise_character, text))
    text = text.replace("\\\n", "  ").translate(_PLAIN_CHARACTERS)
    # A line that begins anew (a list, a heading, an empty line) ends a sentence; any other goes on.
    return re.sub(r"(?<=[\w,;)\"'])[ \t]*\n(?=[ \t]*[A-Za-z(\"'])", _replace_by_spaces, text)


def find_rule_matches(text: str) -> Iterator[RuleMatch]:
    """The matches of all rules in a flattened text."""
    windows = _split_windows(text)
    for rule in _RULES:
        for match in _find_in_windows(rule, text, windows):
            if _applies(rule, text, match):
                yield RuleMatch(rule.code, _DESCRIPTIONS[rule.code], match.start(), match.end())


def _normalise_character(character: str) -> str:
    normalised = unicodedata.normalize("NFKC", character)
    if len(normalised) == 1:
        return normalised
    return character  # several characters would move positions


def _replace_by_spaces(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _split_windows(text: str) -> list[_Window]:
    """One search of a long text would block every other thread until its end."""
    windows: list[_Window] = []
    for start in range(0, len(text), _WINDOW):
        end = start + _WINDOW + _OVERLAP
        windows.append(_Window(start, end, text[start:end].lower()))
    return windows


def _find_in_windows(rule: _Rule, text: str, windows: list[_Window]) -> Iterator[re.Match[str]]:
    for window in windows:
        if not any(keyword in window.lowered_text for keyword in rule.keywords):
            continue
        for match in rule.pattern.finditer(text, window.start, window.end):
            if match.start() < window.start + _WINDOW:
                yield match


def _applies(rule: _Rule, text: str, match: re.Match[str]) -> bool:
    """Whether the words around a match leave it an instruction."""
    before = re.split(r"[.!?]\s|\n", text[max(0, match.start() - 120) : match.start()])[-1]
    if rule.needs_order and not _ORDER_START.search(before):
        return False
    if rule.allows_prohibition:
        return not _PROHIBITION.search(before) or bool(_ENCOURAGEMENT.search(before))
    if rule.code != "concealment":
        return True
    # "do not tell the user that you fixed it before it is checked"
    after = re.split(r"[.!?]\s|\n", text[match.end() : match.end() + 160])[0]
    return not _CONDITION.search(after)
