"""Skills: the model sees names and descriptions, loads a procedure when it needs it, and reads its files on demand.

Messages and so checkpoints hold a skill's name and version; its texts stand in what the model is sent, and nowhere else.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.types import Command

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.skills import Skill, SkillRegistry
from ai_platform_engineering.core.tool_traits import (
    DELEGATION_TOOL,
    PLANNING_TOOL,
    USER_INPUT_TOOL,
    WAIT_TOOL,
)
from ai_platform_engineering.multi_agents.platform_engineer.active_skills import (
    SKILL_FILE,
    ActiveSkill,
    SkillRestrictions,
    find_active_skills,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.multi_agents.platform_engineer.middleware.offered_tools import (
    ModelCallHandler,
    filter_tools,
)
from ai_platform_engineering.multi_agents.platform_engineer.response import PlatformEngineerResponse

LOAD_SKILL = "load_skill"
READ_SKILL_FILE = "read_skill_file"
FIND_SKILLS = "find_skills"
# A procedure may always plan, ask and read itself; `task` refuses agents by itself, as it knows what becomes of a step of the plan.
ALWAYS_ALLOWED = frozenset(
    {LOAD_SKILL, READ_SKILL_FILE, FIND_SKILLS, USER_INPUT_TOOL, PLANNING_TOOL, WAIT_TOOL, DELEGATION_TOOL}
)
_CALLED = re.compile(r"\s*/([a-z0-9]+(?:-[a-z0-9]+)*)(?=\s|$)")
_ROOM = 8_000  # characters for names and descriptions in the prompt
_LONGEST_FILE = 20_000  # characters of a file at a time
_MOST_FOUND = 20
_LIST = """# Skills
Procedures that people here have written down. When a request is what one of them is for, call load_skill before you begin, and follow it.
{skills}"""
_MORE = "- ({count} more: find_skills finds them by words.)"
_BODY = """# The skill {name} (version {version}) is in use
Follow this procedure for the current request. It changes neither what needs a person's approval nor who you are.{files}{bounds}

{body}"""
_FILES = " Its files, to be read with read_skill_file when the procedure needs them: {files}."
_HELD = " While it is in use only these tools and agents may be used: {names}."
_LOADED = "The skill {name} (version {version}) is in use; its text stands in your instructions."
_OFFLINE = "The skill {name} needs a language model, and none is configured: set LLM_MODEL."
_GONE = "(There is no file {path} in version {version} of the skill {name} any more.)"

ToolHandler = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]


class SkillsMiddleware(AgentMiddleware):
    """Outside of everything that asks people or keeps a journal: what a skill does not allow is refused before anybody is asked."""

    def __init__(self, shelf: SkillRegistry, *, offline: bool) -> None:
        """`offline`: no language model follows procedures."""
        super().__init__()
        self._shelf, self._offline = shelf, offline
        self.tools: Sequence[BaseTool] = () if offline else build_skill_tools(shelf)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        messages = request.state["messages"]
        if (called := await self._called(messages)) is not None:
            return ModelResponse(result=[called])
        if self._offline:
            return await handler(request)
        used, bounds = find_active_skills(messages), SkillRestrictions.of(messages)
        said = [await self._listed(), *[await self._body(one, bounds) for one in used]]
        prompt = request.system_message.text if request.system_message else ""
        turn = current_turn(request.messages)
        before = request.messages[
            : len(request.messages) - len(turn)
        ]  # what an earlier question read was for that question
        return await handler(
            filter_tools(request, lambda name: _is_offered(name, bounds)).override(
                system_message=SystemMessage("\n\n".join(filter(None, [prompt, *said]))),
                messages=[*before, *[await self._read(message) for message in turn]],
            )
        )

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolMessage | Command[Any]:
        call, bounds = request.tool_call, SkillRestrictions.of(request.state["messages"])
        if call["name"] in ALWAYS_ALLOWED or bounds.allows(call["name"]):
            return await handler(request)
        return ToolMessage(
            bounds.refusal(call["name"]), tool_call_id=call["id"], name=call["name"], status="error"
        )

    async def _called(self, messages: Sequence[AnyMessage]) -> AIMessage | None:
        """A question that begins with the name of a skill loads it, whatever the model would have done."""
        asked = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)
        found = _CALLED.match(asked.text) if asked is not None else None
        if (
            asked is None
            or found is None
            or any(isinstance(message, AIMessage) for message in current_turn(messages))
        ):
            return None
        skill = await self._shelf.get(found[1])
        if skill is None:
            return None
        if self._offline:
            return AIMessage(_OFFLINE.format(name=skill.name))
        return AIMessage(
            "", tool_calls=[{"name": LOAD_SKILL, "args": {"name": skill.name}, "id": f"{asked.id}:skill"}]
        )

    async def _listed(self) -> str:
        """Names and descriptions, as many as there is room for."""
        skills = await self._shelf.list_usable()
        lines = list[str]()
        room = _ROOM
        for skill in skills:
            line = _line(skill)
            room -= len(line)
            if room < 0:
                lines.append(_MORE.format(count=len(skills) - len(lines)))
                break
            lines.append(line)
        if lines:
            return _LIST.format(skills="\n".join(lines))
        return ""

    async def _body(self, one: ActiveSkill, bounds: SkillRestrictions) -> str:
        skill = await _as_begun(self._shelf, one)
        if skill is None:
            return f"(The skill {one.name} was removed while it was in use. Go on without it, and say so.)"
        files = _FILES.format(files=", ".join(file.path for file in skill.files)) if skill.files else ""
        held = _HELD.format(names=bounds.list_names()) if bounds.names is not None else ""
        return _BODY.format(
            name=skill.name, version=skill.version, files=files, bounds=held, body=skill.body.strip()
        )

    async def _read(self, message: AnyMessage) -> AnyMessage:
        """A message with the file of a skill in its place."""
        file = message.additional_kwargs.get(SKILL_FILE) if isinstance(message, ToolMessage) else None
        if not isinstance(file, dict):
            return message
        name = str(file["name"])
        version = str(file["version"])
        path = str(file["path"])
        start = int(file.get("offset") or 0)
        try:
            text = await self._shelf.read(name, version, path)
        except CaipeError:
            return message.model_copy(update={"content": _GONE.format(name=name, version=version, path=path)})
        piece = text[start : start + _LONGEST_FILE]
        left = len(text) - start - len(piece)
        more = f"\n[{left} more characters: read it with offset {start + len(piece)}]" if left > 0 else ""
        return message.model_copy(update={"content": piece + more})


def _is_offered(name: str, bounds: SkillRestrictions) -> bool:
    return name in ALWAYS_ALLOWED or bounds.allows(name) or name == PlatformEngineerResponse.__name__


def build_skill_tools(shelf: SkillRegistry) -> list[BaseTool]:
    @tool(
        LOAD_SKILL,
        description="Use a skill: its procedure is added to your instructions for the current request.",
    )
    async def load_skill(name: str, runtime: ToolRuntime) -> Command[Any]:
        wanted = name.strip().lstrip("/")
        used = _used(runtime, wanted)
        skill = await (_as_begun(shelf, used) if used else shelf.get(wanted))
        if skill is None:
            return _told(runtime, LOAD_SKILL, f"There is no skill {name}. {await _known(shelf)}", error=True)
        said = _LOADED.format(name=skill.name, version=skill.version)
        if used is not None:
            return _told(runtime, LOAD_SKILL, said)
        runtime.stream_writer(
            NoticeEmitted("skill", f"Skill {skill.name} (version {skill.version}) is in use.")
        )
        return _told(
            runtime,
            LOAD_SKILL,
            said,
            beside=ActiveSkill(skill.name, skill.version, skill.allowed_tools).to_metadata(),
        )

    @tool(
        READ_SKILL_FILE,
        description="Read a file of a skill that is in use, by its path; `offset` goes on with a long one.",
    )
    async def read_skill_file(name: str, path: str, runtime: ToolRuntime, offset: int = 0) -> Command[Any]:
        used = _used(runtime, name.strip())
        if used is None:
            return _told(
                runtime, READ_SKILL_FILE, f"The skill {name} is not in use: load it first.", error=True
            )
        skill = await _as_begun(shelf, used)
        version = skill.version if skill else used.version
        try:
            text = await shelf.read(used.name, version, path)
        except CaipeError as error:
            return _told(runtime, READ_SKILL_FILE, str(error), error=True)
        file = {"name": used.name, "version": version, "path": path, "offset": max(0, offset)}
        said = f"{path} of the skill {used.name} (version {version}), {len(text)} characters."
        return _told(runtime, READ_SKILL_FILE, said, beside={SKILL_FILE: file})

    @tool(FIND_SKILLS, description="Find skills by words of their names and descriptions.")
    async def find_skills(words: str) -> str:
        wanted = words.casefold().split()
        found = [skill for skill in await shelf.list_usable() if _matches(skill, wanted)]
        return "\n".join(map(_line, found[:_MOST_FOUND])) or f"No skill matches. {await _known(shelf)}"

    for one in (load_skill, read_skill_file, find_skills):
        one.metadata = {"effect": "read", "own": True}
    return [load_skill, read_skill_file, find_skills]


def _used(runtime: ToolRuntime, name: str) -> ActiveSkill | None:
    return next(
        (one for one in find_active_skills(runtime.state.get("messages") or ()) if one.name == name), None
    )


async def _as_begun(shelf: SkillRegistry, one: ActiveSkill) -> Skill | None:
    """In the version that the run began with. After a restart there may be only the one of now."""
    return await shelf.get(one.name, one.version) or await shelf.get(one.name)


def _line(skill: Skill) -> str:
    return f"- {skill.name}: {' '.join(skill.description.split())}"


def _matches(skill: Skill, wanted: Sequence[str]) -> bool:
    text = f"{skill.name} {skill.description}".casefold()
    return all(word in text for word in wanted)


async def _known(shelf: SkillRegistry) -> str:
    names = [skill.name for skill in await shelf.list_usable()]
    more = ", …" if len(names) > _MOST_FOUND else ""
    if names:
        return f"The skills are: {', '.join(names[:_MOST_FOUND])}{more}."
    return "There are no skills."


def _told(
    runtime: ToolRuntime, name: str, text: str, *, error: bool = False, beside: dict[str, Any] | None = None
) -> Command[Any]:
    status = "error" if error else "success"
    told = ToolMessage(
        text, tool_call_id=runtime.tool_call_id, name=name, status=status, additional_kwargs=beside or {}
    )
    return Command(update={"messages": [told]})
