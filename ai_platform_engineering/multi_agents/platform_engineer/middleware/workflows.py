"""Self-service workflows: while one runs, it decides in place of the model what the supervisor does next.

Each of its actions is an ordinary tool call: the plan, a form, a delegation. So it shows, pauses, changes
placement and survives a restart like everything else that the supervisor does.
"""

import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolCall, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from pydantic import BaseModel, Field

from ai_platform_engineering.core.events import Form, PlanStep
from ai_platform_engineering.core.message_metadata import (
    DirectCallNote,
    WorkflowRequest,
    WorkflowStepNote,
    direct_calls_metadata,
)
from ai_platform_engineering.core.plan import PlanState, WriteSteps, change_plan, read_steps
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import (
    DELEGATION_TOOL,
    PLANNING_TOOL,
    RUN_WORKFLOW_TOOL,
    USER_INPUT_TOOL,
    mark_as_own,
)
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
from ai_platform_engineering.multi_agents.platform_engineer.middleware.direct_tool_call import NO_MODEL
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    read_system_prompt,
    remove_tool,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.workflow_progress import (
    RunningWorkflow,
    find_running_workflow,
    read_outcomes,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn, find_question
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog, WorkflowEntry

_ID_NAMESPACE = uuid.UUID("0f0a2a52-4f2e-4d7e-8f43-0d1b1f4f8c21")
_TOOL_DESCRIPTION = (
    "Start a self-service workflow when the user asks for what it does. It asks the user for its values "
    "itself, with a form, does its steps and gives the answer.\n{workflows}"
)


class RunWorkflowArguments(BaseModel):
    name: str = Field(description="The workflow's name.")
    values: dict[str, Any] = Field(
        default_factory=dict, description="Values for its form that the user has already given, by field."
    )


class WorkflowMiddleware(AgentMiddleware):
    """Around all that changes a model call: a workflow calls the model only for its own steps."""

    def __init__(
        self,
        workflows: WorkflowCatalog,
        *,
        offline: bool,
        unavailable_agents: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`offline`: without a language model, workflows are found by the words of the question.

        `unavailable_agents`: why an agent is not offered, by its name.
        """
        super().__init__()
        self._unavailable_agents = unavailable_agents
        self._workflows = workflows
        self._offline = offline
        self.tools: Sequence[BaseTool] = ()
        usable = [entry.workflow for entry in workflows if not entry.missing]
        if usable:
            self.tools = (self._build_tool(usable),)

    def _build_tool(self, usable: Sequence[Workflow]) -> BaseTool:
        lines = "\n".join(f"- {workflow.name}: {_describe_workflow(workflow)}" for workflow in usable)

        @tool(
            RUN_WORKFLOW_TOOL,
            args_schema=RunWorkflowArguments,
            description=_TOOL_DESCRIPTION.format(workflows=lines),
        )
        async def run_workflow(
            name: str, runtime: ToolRuntime, values: dict[str, Any] | None = None
        ) -> Command[Any]:
            started = self._start_workflow(name, values or {})
            if isinstance(started, str):
                result = ToolMessage(
                    started, tool_call_id=runtime.tool_call_id, name=RUN_WORKFLOW_TOOL, status="error"
                )
            else:
                result = ToolMessage(
                    f"{name} has begun.",
                    tool_call_id=runtime.tool_call_id,
                    name=RUN_WORKFLOW_TOOL,
                    additional_kwargs=started.to_metadata(),
                )
            return Command(update={"messages": [result]})

        mark_as_own(run_workflow)
        return run_workflow

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        messages = request.state["messages"]
        turn = current_turn(messages)
        running = find_running_workflow(turn)
        if running is None and not any(isinstance(message, AIMessage) for message in turn):
            requested = self._find_requested(messages)
            if isinstance(requested, str):
                return ModelResponse(result=[AIMessage(requested)])
            running = requested
        if running is not None:
            return await self._continue_workflow(request, handler, running, turn)
        if self._offline:
            request = remove_tool(request, RUN_WORKFLOW_TOOL)
        return await handler(request)

    def _find_requested(self, messages: Sequence[AnyMessage]) -> RunningWorkflow | str | None:
        """The workflow that the question starts; a text with the reason when it cannot start."""
        question = find_question(messages)
        if question is None:
            return None
        requested = WorkflowRequest.of(question)
        if requested is not None:
            return self._start_workflow(requested.name, dict(requested.values))
        workflow = self._workflows.find_by_name(question.text)
        if workflow is None and self._offline:
            workflow = self._workflows.find_mentioned(question.text)
        if workflow is None:
            return None
        return self._start_workflow(workflow.name, {})

    def _start_workflow(self, name: str, values: dict[str, Any]) -> RunningWorkflow | str:
        """The workflow from its beginning, or the reason why it cannot start."""
        entry = self._workflows.get(name)
        if entry is None:
            names = ", ".join(entry.workflow.name for entry in self._workflows) or "none"
            return f"There is no workflow {name}. The workflows are: {names}."
        if entry.missing:
            return self._describe_missing(entry)
        return RunningWorkflow(entry.workflow, values)

    def _describe_missing(self, entry: WorkflowEntry) -> str:
        reasons: list[str] = []
        for name in entry.missing:
            reason = self._unavailable_agents.get(name) or "not installed"
            reasons.append(f"The agent {name} is {reason}.")
        return f"{entry.workflow.title} cannot start. {' '.join(reasons)}"

    async def _continue_workflow(
        self,
        request: ModelRequest[Any],
        handler: ModelCallHandler,
        running: RunningWorkflow,
        turn: Sequence[AnyMessage],
    ) -> ModelResponse[Any]:
        """The message with the workflow's next action, after an update of the plan where one is due."""
        outcomes = list(read_outcomes(running, turn))
        message = _WorkflowMessage(running, turn)
        plan_state = PlanState.model_validate(request.state.get("plan") or {})
        action = message.decide_action(outcomes)
        plan_steps = build_plan_steps(running.workflow, outcomes)
        # First the plan: the model's message for a step may be a tool call, which is returned as it is,
        # without the metadata of the workflow.
        if isinstance(action, AskModel) and _is_up_to_date(plan_state, plan_steps, action):
            model_message = None
            if not self._offline:
                model_message = await self._ask_model(request, handler, action)
            if model_message is None:
                outcomes.append(message.fail_step(action.step, NO_MODEL))
            elif model_message.tool_calls:  # the model is not done with the step
                return ModelResponse(result=[model_message])
            else:
                outcomes.append(message.take_model_text(action.step, model_message))
            action = message.decide_action(outcomes)
            plan_steps = build_plan_steps(running.workflow, outcomes)
        if _is_up_to_date(plan_state, plan_steps, action):
            message.add_action(action, plan_state.plan.steps)
        else:
            message.add_plan_update(plan_steps)
        return message.build_response()

    async def _ask_model(
        self, request: ModelRequest[Any], handler: ModelCallHandler, action: AskModel
    ) -> AIMessage:
        """The message of the supervisor's own model for one step; it is told nothing of the other steps."""
        prompt = f"{read_system_prompt(request)}\n\nDo only this step of a workflow now:\n{action.text}"
        step_request = remove_tool(request, RUN_WORKFLOW_TOOL).override(
            system_message=SystemMessage(prompt.strip()), response_format=None
        )
        response = await handler(step_request)
        return next(message for message in reversed(response.result) if isinstance(message, AIMessage))


class _WorkflowMessage:
    """Builds the next message in place of the model's. Its ids are the same when the step runs again."""

    def __init__(self, running: RunningWorkflow, turn: Sequence[AnyMessage]) -> None:
        self._running = running
        self._turn_length = len(turn)
        self._run_id = RunContext.from_config(get_config()).run_id
        self._message_id = str(uuid.uuid5(_ID_NAMESPACE, f"{self._run_id}\n{self._turn_length}"))
        self._text = ""
        self._calls: list[ToolCall] = []
        self._step: str | None = None
        self._failed_steps: dict[str, str] = {}
        # Of the workflow's start and of delegations; the notes on steps are added at the end.
        self._metadata: dict[str, Any] = {}
        if find_running_workflow(turn) is None:
            self._metadata = running.to_metadata()

    def decide_action(self, outcomes: list[StepOutcome]) -> WorkflowAction:
        """The next action. Steps that cannot be tried are recorded as failed, and added to the outcomes."""
        while True:
            action = next_action(self._running.workflow, self._running.values, outcomes)
            if not isinstance(action, FailStep):
                return action
            outcomes.append(self.fail_step(action.step, action.reason))

    def take_model_text(self, step: str, message: AIMessage) -> StepOutcome:
        """Records the model's text as the outcome of a step."""
        if not message.text.strip():
            return self.fail_step(step, "The model returned no text.")
        self._text = message.text
        self._message_id = message.id or self._message_id
        self._step = step
        return StepOutcome(step, ok=True, value=message.text)

    def fail_step(self, step: str, reason: str) -> StepOutcome:
        self._failed_steps[step] = reason
        return StepOutcome(step, ok=False, value=reason)

    def add_action(self, action: WorkflowAction, current_steps: Sequence[PlanStep]) -> None:
        match action:
            case AskPerson(step, form):
                self._step = step
                self._add_call(step, USER_INPUT_TOOL, _form_arguments(form))
            case DelegateTask(step, agent, text, direct_call):
                self._step = step
                step_id = self._find_step_id(step, current_steps)
                arguments = {"description": text, "subagent_type": agent, "step_id": step_id}
                call_id = self._add_call(step, DELEGATION_TOOL, arguments)
                self._metadata.update(direct_calls_metadata({call_id: DirectCallNote(direct_call)}))
            case FinishWorkflow(text):
                self._text = text
            case _:
                pass

    def add_plan_update(self, steps: Sequence[PlanStep]) -> None:
        arguments = {"title": self._running.workflow.title, "todos": _build_todos(steps)}
        self._add_call(PLANNING_TOOL, PLANNING_TOOL, arguments)

    def build_response(self) -> ModelResponse[Any]:
        metadata = {**self._metadata, **WorkflowStepNote(self._step, self._failed_steps).to_metadata()}
        message = AIMessage(
            self._text, id=self._message_id, tool_calls=self._calls, additional_kwargs=metadata
        )
        return ModelResponse(result=[message])

    def _add_call(self, step: str, tool_name: str, arguments: dict[str, Any]) -> str:
        seed = f"{self._run_id}\n{self._running.start}\n{self._turn_length}\n{step}"
        call_id = f"{step}-{uuid.uuid5(_ID_NAMESPACE, seed).hex[:8]}"
        self._calls.append(ToolCall(name=tool_name, args=arguments, id=call_id))
        return call_id

    def _find_step_id(self, name: str, current_steps: Sequence[PlanStep]) -> str | None:
        """The id of the plan's open step for a step of the workflow."""
        step = next(step for step in self._running.workflow.sequence if step.name == name)
        for plan_step in current_steps:
            is_same = (plan_step.agent, plan_step.title) == (step.agent, step.display_title)
            if is_same and plan_step.status in ("pending", "in_progress"):
                return plan_step.step_id
        return None


def _form_arguments(form: Form) -> dict[str, Any]:
    """The form as arguments of the tool that asks people."""
    return {
        "response": form.response,
        "input_title": form.title,
        "input_description": form.description,
        "input_fields": [field.model_dump(mode="json", exclude_none=True) for field in form.fields],
    }


def _build_todos(steps: Sequence[PlanStep]) -> list[dict[str, str]]:
    return [{"title": step.title, "agent": step.agent, "status": step.status} for step in steps]


def _is_up_to_date(state: PlanState, plan_steps: Sequence[PlanStep], action: WorkflowAction) -> bool:
    """Whether the plan would stay as it is. A delegation itself moves its step to in progress."""
    written = change_plan(state, WriteSteps(steps=read_steps(_build_todos(plan_steps))))
    if len(state.plan.steps) != len(plan_steps):
        return False
    delegated_step = action.step if isinstance(action, DelegateTask) else None
    for current, after, planned in zip(state.plan.steps, written.plan.steps, plan_steps, strict=True):
        if (current.agent, current.title) != (after.agent, after.title):
            return False
        if current.status != after.status and planned.step_id != delegated_step:
            return False
    return True


def _describe_workflow(workflow: Workflow) -> str:
    """The description for the model, with the names of the form's fields."""
    description = " ".join(workflow.description.split())
    if workflow.form is None or not workflow.form.fields:
        return description
    return f"{description} Fields: {', '.join(field.name for field in workflow.form.fields)}."
