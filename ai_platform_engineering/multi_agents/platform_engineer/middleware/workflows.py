"""Self-service workflows: in the place of the model, a workflow says what the supervisor does next.

Everything it does is an ordinary call: the plan, a form, a delegation. So it shows, pauses, moves between placements and survives a
restart like anything else the supervisor does; how far it is can be read from the messages of its run.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from pydantic import BaseModel, Field, JsonValue

from ai_platform_engineering.core.events import PlanStep
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL
from ai_platform_engineering.core.workflow_actions import (
    AskModel,
    AskPerson,
    DelegateTask,
    FailStep,
    FinishWorkflow,
    StepOutcome,
    WorkflowAction,
    build_plan_steps,
    next_action,
)
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.multi_agents.platform_engineer.delegation import DIRECT_CALLS
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.middleware.direct_tool_call import (
    NEEDS_MODEL,
    NO_MODEL,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    remove_tool,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.user_input import DECLINED
from ai_platform_engineering.runtime.checkpoints.fenced_saver import RUN_ID_KEY
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog, WorkflowEntry

RUN_WORKFLOW = "run_workflow"
WORKFLOW = "workflow"  # in what a message carries beside its text: the workflow that begins with it
_STEP = "workflow_step"  # the step that a message of ours works on
_FAILED = "workflow_failed"  # steps that failed without being tried
_SCOPE = uuid.UUID("0f0a2a52-4f2e-4d7e-8f43-0d1b1f4f8c21")


@dataclass(frozen=True, slots=True)
class _Running:
    """A workflow under way: as it was when it began, whatever has become of its file since."""

    workflow: Workflow
    given: Mapping[str, JsonValue]
    begun: int  # the place of the message that began it, in its turn

    def carried(self) -> dict[str, Any]:
        return {WORKFLOW: {"definition": self.workflow.model_dump(mode="json"), "given": dict(self.given)}}


class RunWorkflowArguments(BaseModel):
    name: str = Field(description="The workflow's name.")
    values: dict[str, Any] = Field(
        default_factory=dict, description="Values for its form that the user has already given, by field."
    )


class WorkflowMiddleware(AgentMiddleware):
    """Outermost of those that wrap the model: while a workflow runs, the model is asked only for the steps that are its own."""

    def __init__(self, workflows: WorkflowCatalog, *, offline: bool) -> None:
        """`offline`: no language model chooses; what the user says is matched by its words."""
        super().__init__()
        self._workflows, self._offline = workflows, offline
        self.tools: Sequence[BaseTool] = (
            (self._tool(),) if any(not entry.missing for entry in workflows) else ()
        )

    def _tool(self) -> BaseTool:
        offered = "\n".join(
            f"- {entry.workflow.name}: {_about(entry.workflow)}"
            for entry in self._workflows
            if not entry.missing
        )
        about = (
            "Start a self-service workflow when the user asks for what it does. It asks the user for its values itself, with a form, does "
            f"its steps and gives the answer.\n{offered}"
        )

        @tool(RUN_WORKFLOW, args_schema=RunWorkflowArguments, description=about)
        async def run_workflow(
            name: str, runtime: ToolRuntime, values: dict[str, Any] | None = None
        ) -> Command[Any]:
            entry = self._workflows.get(name)
            begun, problem = (
                (_Running(entry.workflow, values or {}, 0), _problem(entry))
                if entry
                else (None, self._unknown(name))
            )
            told = ToolMessage(
                problem or f"{name} has begun.",
                tool_call_id=runtime.tool_call_id,
                name=RUN_WORKFLOW,
                status="error" if problem else "success",
                additional_kwargs=begun.carried() if begun and not problem else {},
            )
            return Command(update={"messages": [told]})

        run_workflow.metadata = {"effect": "read", "own": True}
        return run_workflow

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        turn = current_turn(request.state["messages"])
        running = _running(turn)
        if running is None and not any(isinstance(message, AIMessage) for message in turn):
            wanted = self._wanted(request.state["messages"])
            if isinstance(wanted, str):
                return ModelResponse(result=[AIMessage(wanted)])
            running = wanted
        if running is None:
            return await handler(remove_tool(request, RUN_WORKFLOW) if self._offline else request)
        return await self._goes_on(request, handler, running, turn)

    def _wanted(self, messages: Sequence[AnyMessage]) -> "_Running | str | None":
        """The workflow that a question starts, by name or by what it says; a sentence when it cannot be started."""
        asked = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)
        if asked is None:
            return None
        given = asked.additional_kwargs.get(WORKFLOW)
        if isinstance(given, Mapping):
            entry, name = self._workflows.get(str(given.get("name"))), str(given.get("name"))
            values = given.get("values")
            if entry is None:
                return self._unknown(name)
            return _problem(entry) or _Running(entry.workflow, dict(values or {}), 0)
        found = self._workflows.find_by_name(asked.text) or (
            self._workflows.find_mentioned(asked.text) if self._offline else None
        )
        entry = self._workflows.get(found.name) if found else None
        if entry is None:
            return None
        return _problem(entry) or _Running(entry.workflow, {}, 0)

    def _unknown(self, name: str) -> str:
        return f"There is no workflow {name}. The workflows are: {', '.join(entry.workflow.name for entry in self._workflows) or 'none'}."

    async def _goes_on(
        self,
        request: ModelRequest[Any],
        handler: ModelCallHandler,
        running: _Running,
        turn: Sequence[AnyMessage],
    ) -> ModelResponse[Any]:
        outcomes, message = list(_outcomes(running, turn)), _Message(running, turn)
        plan = PlanState.model_validate(request.state.get("plan") or {}).plan.steps
        move = message.settle(outcomes)
        wanted = build_plan_steps(running.workflow, outcomes)
        # First the plan: what the model says to a step may be a call, which does not carry that a workflow has begun.
        if isinstance(move, AskModel) and _shows(plan, wanted, move):
            said = None if self._offline else await self._think(request, handler, move)
            if said and said.tool_calls:  # it is not done with the step
                return ModelResponse(result=[said])
            outcomes.append(message.said(move.step, said) if said else message.failed(move.step, NO_MODEL))
            move = message.settle(outcomes)
            wanted = build_plan_steps(running.workflow, outcomes)
        if not _shows(plan, wanted, move):
            message.call(
                PLANNING_TOOL,
                PLANNING_TOOL,
                {"title": running.workflow.title, "todos": [_todo(step) for step in wanted]},
            )
            return message.response()
        message.make(move, plan)
        return message.response()

    async def _think(
        self, request: ModelRequest[Any], handler: ModelCallHandler, move: AskModel
    ) -> AIMessage:
        """The supervisor's own model does one step, and sees nothing of the rest."""
        prompt = f"{request.system_message.text if request.system_message else ''}\n\nDo only this step of a workflow now:\n{move.text}"
        changed = remove_tool(request, RUN_WORKFLOW).override(
            system_message=SystemMessage(prompt.strip()), response_format=None
        )
        response = await handler(changed)
        return next(message for message in reversed(response.result) if isinstance(message, AIMessage))


class _Message:
    """The next message in the place of the model's."""

    def __init__(self, running: _Running, turn: Sequence[AnyMessage]) -> None:
        self._running, self._turn = running, turn
        self.text, self._calls = "", list[ToolCall]()
        self.id = str(uuid.uuid5(_SCOPE, f"{_run_id()}\n{len(turn)}"))
        self.carries: dict[str, Any] = {} if _running(turn) else running.carried()

    def settle(self, outcomes: list[StepOutcome]) -> WorkflowAction:
        """The next move that somebody must make; a step that cannot be tried has failed."""
        while isinstance(
            move := next_action(self._running.workflow, self._running.given, outcomes), FailStep
        ):
            outcomes.append(self.failed(move.step, move.reason))
        return move

    def said(self, step: str, message: AIMessage) -> StepOutcome:
        """What the model gave for a step."""
        if not message.text.strip():
            return self.failed(step, "The model said nothing.")
        self.text = message.text
        self.id = message.id or self.id
        self.carries[_STEP] = step
        return StepOutcome(step, ok=True, value=message.text)

    def failed(self, step: str, reason: str) -> StepOutcome:
        self.carries.setdefault(_FAILED, {})[step] = reason
        return StepOutcome(step, ok=False, value=reason)

    def make(self, move: WorkflowAction, plan: Sequence[PlanStep]) -> None:
        match move:
            case AskPerson(step, form):
                fields = [field.model_dump(mode="json", exclude_none=True) for field in form.fields]
                about = {
                    "response": form.response,
                    "input_title": form.title,
                    "input_description": form.description,
                }
                self.call(step, USER_INPUT_TOOL, {**about, "input_fields": fields})
            case DelegateTask(step, agent, text, call):
                call_id = self.call(
                    step,
                    DELEGATION_TOOL,
                    {"description": text, "subagent_type": agent, "step_id": self._step_id(step, plan)},
                )
                order = NEEDS_MODEL if call is None else {"tool": call.tool, "arguments": call.arguments}
                self.carries[DIRECT_CALLS] = {call_id: order}
            case FinishWorkflow(text):
                self.text = text
            case _:
                pass

    def call(self, step: str, name: str, arguments: dict[str, Any]) -> str:
        if name != PLANNING_TOOL:
            self.carries[_STEP] = step
        seed = f"{_run_id()}\n{self._running.begun}\n{len(self._turn)}\n{step}"
        call_id = f"{step}-{uuid.uuid5(_SCOPE, seed).hex[:8]}"
        self._calls.append(ToolCall(name=name, args=arguments, id=call_id))
        return call_id

    def response(self) -> ModelResponse[Any]:
        return ModelResponse(
            result=[AIMessage(self.text, id=self.id, tool_calls=self._calls, additional_kwargs=self.carries)]
        )

    def _step_id(self, name: str, plan: Sequence[PlanStep]) -> str | None:
        step = next(step for step in self._running.workflow.sequence if step.name == name)
        same = [
            one
            for one in plan
            if (one.agent, one.title) == (step.agent, step.display_title)
            and one.status in ("pending", "in_progress")
        ]
        if same:
            return same[0].step_id
        return None


def _running(turn: Sequence[AnyMessage]) -> _Running | None:
    """The workflow that began last in the turn and has not said its last words."""
    for place in range(len(turn) - 1, -1, -1):
        begun = turn[place].additional_kwargs.get(WORKFLOW)
        if isinstance(begun, Mapping) and "definition" in begun:
            return _Running(Workflow.model_validate(begun["definition"]), begun.get("given") or {}, place)
    return None


def _outcomes(running: _Running, turn: Sequence[AnyMessage]) -> Iterator[StepOutcome]:
    """What the steps gave so far, by the messages since it began."""
    results = {message.tool_call_id: message for message in turn if isinstance(message, ToolMessage)}
    for message in turn[running.begun :]:
        if not isinstance(message, AIMessage):
            continue
        for step, reason in (message.additional_kwargs.get(_FAILED) or {}).items():
            yield StepOutcome(step, ok=False, value=reason)
        step = message.additional_kwargs.get(_STEP)
        calls = [call for call in message.tool_calls if call["name"] in (USER_INPUT_TOOL, DELEGATION_TOOL)]
        if step is None:
            continue
        if message.text:
            yield StepOutcome(step, ok=True, value=message.text)
            continue
        for call in calls:
            if (result := results.get(call["id"] or "")) is not None:
                yield _outcome(step, call, result)


def _outcome(step: str, call: ToolCall, result: ToolMessage) -> StepOutcome:
    if result.status == "error" or call["name"] != USER_INPUT_TOOL:
        return StepOutcome(step, ok=result.status != "error", value=result.text)
    values, fields = (
        json.loads(result.text),
        {field["field_name"] for field in call["args"].get("input_fields") or ()},
    )
    if DECLINED in values and DECLINED not in fields:
        return StepOutcome(step, ok=False, value=values[DECLINED])
    return StepOutcome(step, ok=True, value=values)


def _shows(plan: Sequence[PlanStep], wanted: Sequence[PlanStep], move: WorkflowAction) -> bool:
    """The plan says already what is wanted of it; a delegation brings its own step into progress."""
    begins = move.step if isinstance(move, DelegateTask) else None
    return len(plan) == len(wanted) and all(
        (now.agent, now.title) == (then.agent, then.title)
        and (now.status == then.status or then.step_id == begins)
        for now, then in zip(plan, wanted, strict=True)
    )


def _todo(step: PlanStep) -> dict[str, str]:
    return {"title": step.title, "agent": step.agent, "status": step.status}


def _problem(entry: WorkflowEntry) -> str:
    if not entry.missing:
        return ""
    needs = ", ".join(entry.missing)
    return f"{entry.workflow.title} cannot be started: it needs {needs}, which is not available. `caipe agents` says why."


def _about(workflow: Workflow) -> str:
    fields = [field.name for field in workflow.form.fields] if workflow.form else []
    asks = f" Fields: {', '.join(fields)}." if fields else ""
    return f"{' '.join(workflow.description.split())}{asks}"


def _run_id() -> str:
    return str((get_config().get("metadata") or {}).get(RUN_ID_KEY) or "")
