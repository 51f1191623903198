"""A team that looks into a failing rollout, as people would ask it: Argo CD, Kubernetes and Jira, with a
plan, work in parallel, an approval, a form, a failure and long answers. The pace is the caller's."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from tests.support.fakes.gate import Gate
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Casting, Fail, Say, Script, Turn
from tests.support.harness import agent

ROLLOUT = "Why is the checkout rollout stuck in production?"
ROLL_BACK = "Roll checkout back to 1.41.2."
REPOSITORY = "Create a repository for the payments team."
OUTAGE = "What did last night's deployment change?"
LONG = "Write the incident report."
SHORT = "Is the cluster healthy?"

_ISSUE = "https://jira.example.com/browse/PAY-2291"
_APPLICATION = "https://argocd.example.com/applications/checkout"

_ANSWER = f"""The rollout of **checkout 1.42.0** is stuck because the new pods never become ready: they are \
killed while they start.

| Pod | State | Restarts | Reason |
|---|---|---:|---|
| `checkout-7d9f6c-2x8qk` | CrashLoopBackOff | 14 | OOMKilled, 256 MiB |
| `checkout-7d9f6c-9bdlm` | CrashLoopBackOff | 13 | OOMKilled, 256 MiB |
| `checkout-5b8c4d-kk2vp` | Running | 0 | 1.41.2, serves all traffic |

### What happened

1. Version 1.42.0 loads the price catalogue into memory at its start, which needs about 410 MiB.
2. The limit of the container is still `256Mi`, so the kernel ends it before the readiness probe answers.
3. Argo CD waits for the new replica set and shows [checkout]({_APPLICATION}) as *Progressing*. \
Customers see nothing of it: the old pods serve everything.

### What to do

Raise the limit, as [PAY-2291]({_ISSUE}) proposes:

```yaml
resources:
  requests:
    memory: 384Mi
  limits:
    memory: 640Mi  # was 256Mi
```

Or go back to `1.41.2` until the change is merged. I can do either; both need your approval.
"""

FORM: dict[str, Any] = {
    "type": "form",
    "title": "New repository",
    "description": "Created in the organisation of the team, with its main branch protected.",
    "response": "I need a few details before I create it.",
    "fields": [
        {
            "field_name": "name",
            "field_label": "Name",
            "field_description": "Lower case letters, digits and hyphens.",
            "pattern": "[a-z0-9-]+",
            "min_length": 3,
            "max_length": 80,
            "placeholder": "payments-ledger",
        },
        {
            "field_name": "visibility",
            "field_label": "Visibility",
            "field_type": "select",
            "field_values": ["internal", "private", "public"],
            "default_value": "internal",
        },
        {
            "field_name": "languages",
            "field_label": "Languages",
            "field_type": "multiselect",
            "field_values": ["Go", "Python", "TypeScript", "Terraform"],
            "required": False,
        },
        {
            "field_name": "owner",
            "field_label": "Contact",
            "field_type": "email",
            "field_description": "Who is asked when something is wrong with it.",
        },
        {
            "field_name": "reviewers",
            "field_label": "Reviews before a merge",
            "field_type": "integer",
            "minimum": 1,
            "maximum": 6,
            "default_value": 2,
        },
        {
            "field_name": "scan",
            "field_label": "Scan dependencies every night",
            "field_type": "boolean",
            "default_value": True,
            "required": False,
        },
    ],
}

_PLAN = [
    "[Argocd] Read the state of the application",
    "[Kubernetes] Look at the new pods and their events",
    "[Jira] Search for known problems",
    "[Supervisor] Explain the cause and what to do",
]


class Pace(Gate):
    """Sends each piece after a pause, as a model does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def before(self, piece: str) -> None:
        await asyncio.sleep(self._seconds)


@dataclass(frozen=True)
class PlatformStage:
    """The supervisor's script, its agents and tools. A tool takes `seconds`, a piece of text `pace`."""

    seconds: float = 0.0
    pace: float = 0.0
    long_answer: str = "Nothing to report."
    more: Mapping[str, Script] | None = None

    @property
    def tools(self) -> list[BaseTool]:
        return [_form_tool()]

    @property
    def agents(self) -> list[Any]:
        return [self._argocd(), self._kubernetes(), self._jira()]

    @property
    def book(self) -> Casting:
        gate = Pace(self.pace)
        rollout = Script(
            Turn(
                Say("I will look at the application, its pods and what is known about it. "),
                Call("write_todos", {"title": "Why checkout is stuck", "todos": _PLAN}),
            ),
            Turn(
                _task("argocd", "State and history of the application checkout in production.", 1),
                _task("kubernetes", "Pods of checkout in production, with events and restarts.", 2),
            ),
            Turn(
                Say("The new pods run out of memory. I check whether that is known. "),
                _task("jira", "Open issues about memory of checkout.", 3),
            ),
            Turn(Say(_ANSWER)),
            gate=gate,
        )
        return Book(
            {
                "checkout rollout stuck": rollout,
                "Roll checkout back": _delegating("argocd", "Roll checkout back to 1.41.2.", gate),
                "repository": Script(
                    Turn(Say("I can do that. "), Call("ask_form")),
                    Turn(
                        Say("**{{tool:ask_form.name}}** is there, with two reviewers and the nightly scan.")
                    ),
                    gate=gate,
                ),
                "last night": Script(Turn(Fail(503, message="The model is overloaded."))),
                "incident report": Script(Turn(Say(*_cut(self.long_answer))), gate=gate),
                **(self.more or {}),
            },
            default=Script(Turn(Say("All 24 nodes are ready, and no pod waits for a place.")), gate=gate),
        )

    def _argocd(self) -> Any:
        reading = Script(
            Turn(
                Call("get_application", {"name": "checkout", "project": "production"}),
                Call("get_application_history", {"name": "checkout", "limit": 5}),
            ),
            Turn(
                Say("`checkout` is *Progressing* since 09:12; revision 1.42.0 waits for its new replica set.")
            ),
        )
        rolling_back = Script(
            Turn(
                Call(
                    "rollback_application",
                    {"name": "checkout", "revision": "1.41.2", "prune": False, "timeout_seconds": 300},
                )
            ),
            Turn(Say("{{tool:rollback_application.message}}")),
        )
        application = {"name": "checkout", "sync": "Synced", "health": "Progressing", "url": _APPLICATION}
        history = {"revisions": ["1.42.0", "1.41.2", "1.41.1"], "deployed": "2026-11-17T09:12:04Z"}
        script = _ByText({"Roll": rolling_back}, reading)
        return agent(
            "argocd",
            _model(script),
            self._tool("get_application", application),
            self._tool("get_application_history", history, 0.6),
            _rollback_tool(),
        )

    def _kubernetes(self) -> Any:
        script = Script(
            Turn(
                Call("list_pods", {"namespace": "production", "labels": {"app": "checkout"}}),
                Call("list_events", {"namespace": "production", "involved": "checkout-7d9f6c"}),
            ),
            Turn(Call("get_logs", {"pod": "checkout-7d9f6c-2x8qk", "previous": True, "tail": 40})),
            Turn(Say("Both new pods were **OOMKilled** 14 and 13 times; the limit is 256 MiB.")),
        )
        pods = [
            {"name": "checkout-7d9f6c-2x8qk", "phase": "CrashLoopBackOff", "restarts": 14},
            {"name": "checkout-7d9f6c-9bdlm", "phase": "CrashLoopBackOff", "restarts": 13},
            {"name": "checkout-5b8c4d-kk2vp", "phase": "Running", "restarts": 0},
        ]
        events = {"events": [{"reason": "OOMKilling", "message": "Memory cgroup out of memory", "count": 27}]}
        return agent(
            "kubernetes",
            _model(script),
            self._tool("list_pods", pods, 0.8),
            self._tool("list_events", events, 1.4),
            self._tool(
                "get_logs", {"lines": ["loading catalogue…", "catalogue: 1.2 M prices", "Killed"]}, 0.7
            ),
        )

    def _jira(self) -> Any:
        script = Script(
            Turn(
                Call("search_issues", {"jql": "project = PAY AND text ~ 'checkout memory' AND status = Open"})
            ),
            Turn(Say("PAY-2291 proposes a limit of 640 MiB; it waits for a review.")),
        )
        issues = {"issues": [{"key": "PAY-2291", "summary": "Raise memory of checkout", "url": _ISSUE}]}
        return agent("jira", _model(script), self._tool("search_issues", issues, 1.2))

    def _tool(self, name: str, result: Any, share: float = 1.0) -> BaseTool:
        async def call(**arguments: Any) -> str:
            await asyncio.sleep(self.seconds * share)
            return json.dumps(result)

        return StructuredTool.from_function(
            coroutine=call, name=name, description=f"Does {name}.", args_schema=_ANY_ARGUMENTS
        )


_ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}


class _ByText(Casting):
    """The script of the first text that is in the assignment."""

    def __init__(self, scripts: Mapping[str, Script], default: Script) -> None:
        self._book = Book(scripts, default)

    def choose(self, request: Any) -> Script:
        return self._book.choose(request)


def _model(script: Casting) -> ScriptedChatModel:
    return ScriptedChatModel(script=script)


def _task(name: str, text: str, step: int) -> Call:
    return Call("task", {"description": text, "subagent_type": name, "step_id": f"step-{step}"})


def _delegating(name: str, text: str, gate: Gate) -> Script:
    call = Call("task", {"description": text, "subagent_type": name})
    return Script(
        Turn(Say("Argo CD can go back to the last healthy version. "), call),
        Turn(Say("Done: {{tool:argocd}}")),
        gate=gate,
    )


def _cut(text: str) -> tuple[str, ...]:
    """The text in pieces as models send it; larger ones where there would be too many."""
    size = max(20, len(text) // 4000)
    pieces = tuple(text[start : start + size] for start in range(0, len(text), size))
    return pieces if len(pieces) > 1 else (text, "")


def _form_tool() -> BaseTool:
    async def ask_form() -> str:
        """Asks what the repository needs."""
        return json.dumps(interrupt(FORM))

    return StructuredTool.from_function(coroutine=ask_form, name="ask_form")


def _rollback_tool() -> BaseTool:
    async def rollback_application(
        name: str, revision: str, prune: bool = False, timeout_seconds: int = 300
    ) -> str:
        """Rolls an application back to a revision of its history."""
        message = f"{name} runs {revision} again; the sync took less than {timeout_seconds} s."
        return json.dumps({"message": message, "pruned": prune})

    return StructuredTool.from_function(
        coroutine=rollback_application, name="rollback_application", metadata={"listed": "ask"}
    )
