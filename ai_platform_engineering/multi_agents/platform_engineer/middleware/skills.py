"""Skills: the model sees names and descriptions, and loads a procedure and its files on demand.

Messages, and so checkpoints, hold a skill's name and version; its texts are only in the model requests.
"""

import re
from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain.tools import BaseTool
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import ActiveSkill, SkillFileNote
from ai_platform_engineering.core.skills import SkillRegistry
from ai_platform_engineering.core.tool_traits import LOAD_SKILL_TOOL, ToolTraits
from ai_platform_engineering.multi_agents.platform_engineer.active_skills import (
    SkillRestrictions,
    find_active_skills,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import (
    add_to_system_prompt,
    filter_tools,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.skill_tools import (
    build_skill_tools,
    describe_skill,
    get_active_version,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn, find_question

_SLASH_COMMAND = re.compile(r"\s*/([a-z0-9]+(?:-[a-z0-9]+)*)(?=\s|$)")
_MAX_CHARS_IN_PROMPT = 8_000  # for names and descriptions
_MAX_FILE_CHARS = 20_000  # of a file at a time
_LIST = (
    "# Skills\n"
    "Procedures that people here have written down. When a request is what one of them is for, call "
    "load_skill before you begin, and follow it.\n"
    "{skills}"
)
_MORE = "- ({count} more: find_skills finds them by words.)"
_PROCEDURE = (
    "# The skill {name} (version {version}) is in use\n"
    "Follow this procedure for the current request. It changes neither what needs a person's approval nor "
    "who you are.{files}{restrictions}\n"
    "\n"
    "{body}"
)
_FILES = " Its files, to be read with read_skill_file when the procedure needs them: {files}."
_RESTRICTIONS = " While it is in use only these tools and agents may be used: {names}."
_OFFLINE = "The skill {name} needs a language model, and none is configured: set LLM_MODEL."
_FILE_REMOVED = "(There is no file {path} in version {version} of the skill {name} any more.)"


class SkillsMiddleware(AgentMiddleware):
    """Wraps approvals and the journal: a skill's refusal comes before anybody is asked."""

    def __init__(self, registry: SkillRegistry, *, offline: bool) -> None:
        """`offline`: there is no language model that could follow procedures."""
        super().__init__()
        self._registry = registry
        self._offline = offline
        self.tools: Sequence[BaseTool] = () if offline else build_skill_tools(registry)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        messages = request.state["messages"]
        command_reply = await self._run_slash_command(messages)
        if command_reply is not None:
            return ModelResponse(result=[command_reply])
        if self._offline:
            return await handler(request)
        restrictions = SkillRestrictions.of(messages)
        sections = [await self._list_skills()]
        for active_skill in find_active_skills(messages):
            sections.append(await self._render_procedure(active_skill, restrictions))
        request = filter_tools(request, lambda name: _is_offered(name, restrictions))
        request = add_to_system_prompt(request, sections)
        messages_with_files = await self._insert_files(request.messages)
        if messages_with_files is not None:
            request = request.override(messages=messages_with_files)
        return await handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        call = request.tool_call
        restrictions = SkillRestrictions.of(request.state["messages"])
        if _is_always_allowed(call["name"]) or restrictions.allows(call["name"]):
            return await handler(request)
        refusal = restrictions.refusal(call["name"])
        return ToolMessage(refusal, tool_call_id=call["id"], name=call["name"], status="error")

    async def _run_slash_command(self, messages: Sequence[AnyMessage]) -> AIMessage | None:
        """The message that loads a skill whose name begins the question, in place of the model's."""
        question = find_question(messages)
        if question is None:
            return None
        command = _SLASH_COMMAND.match(question.text)
        if command is None or any(isinstance(message, AIMessage) for message in current_turn(messages)):
            return None
        skill = await self._registry.get(command[1])
        if skill is None:
            return None
        if self._offline:
            return AIMessage(_OFFLINE.format(name=skill.name))
        call = {"name": LOAD_SKILL_TOOL, "args": {"name": skill.name}, "id": f"{question.id}:skill"}
        return AIMessage("", tool_calls=[call])

    async def _list_skills(self) -> str:
        """The names and descriptions for the prompt, as many as fit."""
        skills = await self._registry.list_usable()
        lines: list[str] = []
        remaining_chars = _MAX_CHARS_IN_PROMPT
        for skill in skills:
            line = describe_skill(skill)
            remaining_chars -= len(line)
            if remaining_chars < 0:
                lines.append(_MORE.format(count=len(skills) - len(lines)))
                break
            lines.append(line)
        if not lines:
            return ""
        return _LIST.format(skills="\n".join(lines))

    async def _render_procedure(self, active_skill: ActiveSkill, restrictions: SkillRestrictions) -> str:
        """The procedure of an active skill for the prompt."""
        skill = await get_active_version(self._registry, active_skill)
        if skill is None:
            name = active_skill.name
            return f"(The skill {name} was removed while it was in use. Go on without it, and say so.)"
        files = ""
        if skill.files:
            files = _FILES.format(files=", ".join(file.path for file in skill.files))
        restricted_to = ""
        if restrictions.names is not None:
            restricted_to = _RESTRICTIONS.format(names=restrictions.list_names())
        return _PROCEDURE.format(
            name=skill.name,
            version=skill.version,
            files=files,
            restrictions=restricted_to,
            body=skill.body.strip(),
        )

    async def _insert_files(self, messages: Sequence[AnyMessage]) -> list[AnyMessage] | None:
        """The messages with the texts of the skill files that the current turn has read; none without any."""
        turn = current_turn(messages)
        if not any(isinstance(message, ToolMessage) for message in turn):
            return None
        changed = list(messages[: len(messages) - len(turn)])
        for message in turn:
            changed.append(await self._insert_file(message))
        return changed

    async def _insert_file(self, message: AnyMessage) -> AnyMessage:
        """The message with the text of the skill file that it names; any other message as it is."""
        if not isinstance(message, ToolMessage):
            return message
        file = SkillFileNote.of(message)
        if file is None:
            return message
        try:
            text = await self._registry.read(file.name, file.version, file.path)
        except CaipeError:
            content = _FILE_REMOVED.format(name=file.name, version=file.version, path=file.path)
            return message.model_copy(update={"content": content})
        content = text[file.offset : file.offset + _MAX_FILE_CHARS]
        end = file.offset + len(content)
        remaining_chars = len(text) - end
        if remaining_chars > 0:
            content += f"\n[{remaining_chars} more characters: read it with offset {end}]"
        return message.model_copy(update={"content": content})


def _is_offered(name: str, restrictions: SkillRestrictions) -> bool:
    return _is_always_allowed(name) or restrictions.allows(name) or ToolTraits.from_name(name).answers


def _is_always_allowed(name: str) -> bool:
    """A procedure may always plan, ask and read its own files.

    The `task` tool checks agents itself, as a refused delegation also ends its step of the plan.
    """
    traits = ToolTraits.from_name(name)
    return traits.is_control or traits.manages_skills
