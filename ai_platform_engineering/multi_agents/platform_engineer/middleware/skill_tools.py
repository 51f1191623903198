"""The model's tools for skills: find one, load it, read its files."""

from collections.abc import Sequence
from typing import Any

from langchain.tools import BaseTool, ToolRuntime, tool
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.message_metadata import ActiveSkill, ResultSource, SkillFileNote
from ai_platform_engineering.core.signals import NoticeEmitted
from ai_platform_engineering.core.skills import Skill, SkillRegistry
from ai_platform_engineering.core.tool_traits import (
    FIND_SKILLS_TOOL,
    LOAD_SKILL_TOOL,
    READ_SKILL_FILE_TOOL,
    mark_as_own,
)
from ai_platform_engineering.multi_agents.platform_engineer.active_skills import find_active_skills
from ai_platform_engineering.multi_agents.platform_engineer.untrusted_messages import TRUSTED_ORIGINS

_MAX_LISTED = 20
_LOADED = "The skill {name} (version {version}) is in use; its text stands in your instructions."


def build_skill_tools(registry: SkillRegistry) -> list[BaseTool]:
    @tool(
        LOAD_SKILL_TOOL,
        description="Use a skill: its procedure is added to your instructions for the current request.",
    )
    async def load_skill(name: str, runtime: ToolRuntime) -> Command[Any]:
        skill_name = name.strip().lstrip("/")
        active_skill = _find_active_skill(runtime, skill_name)
        if active_skill is not None:
            skill = await get_active_version(registry, active_skill)
        else:
            skill = await registry.get(skill_name)
        if skill is None:
            text = f"There is no skill {name}. {await _list_names(registry)}"
            return _tool_result(runtime, LOAD_SKILL_TOOL, text, error=True)
        text = _LOADED.format(name=skill.name, version=skill.version)
        if active_skill is not None:
            return _tool_result(runtime, LOAD_SKILL_TOOL, text)
        notice = f"Skill {skill.name} (version {skill.version}) is in use."
        runtime.stream_writer(NoticeEmitted("skill", notice))
        metadata = ActiveSkill(skill.name, skill.version, skill.allowed_tools).to_metadata()
        if skill.origin not in TRUSTED_ORIGINS:
            metadata |= ResultSource(f"the skill {skill.name}").to_metadata()
        return _tool_result(runtime, LOAD_SKILL_TOOL, text, metadata=metadata)

    @tool(
        READ_SKILL_FILE_TOOL,
        description="Read a file of a skill that is in use, by its path; `offset` goes on with a long one.",
    )
    async def read_skill_file(name: str, path: str, runtime: ToolRuntime, offset: int = 0) -> Command[Any]:
        active_skill = _find_active_skill(runtime, name.strip())
        if active_skill is None:
            text = f"The skill {name} is not in use: load it first."
            return _tool_result(runtime, READ_SKILL_FILE_TOOL, text, error=True)
        skill = await get_active_version(registry, active_skill)
        version = skill.version if skill else active_skill.version
        try:
            content = await registry.read(active_skill.name, version, path)
        except CaipeError as error:
            return _tool_result(runtime, READ_SKILL_FILE_TOOL, str(error), error=True)
        metadata = SkillFileNote(active_skill.name, version, path, max(0, offset)).to_metadata()
        if skill is None or skill.origin not in TRUSTED_ORIGINS:
            metadata |= ResultSource(f"a file of the skill {active_skill.name}").to_metadata()
        text = f"{path} of the skill {active_skill.name} (version {version}), {len(content)} characters."
        return _tool_result(runtime, READ_SKILL_FILE_TOOL, text, metadata=metadata)

    @tool(FIND_SKILLS_TOOL, description="Find skills by words of their names and descriptions.")
    async def find_skills(words: str) -> str:
        search_words = words.casefold().split()
        matches = [skill for skill in await registry.list_usable() if _matches(skill, search_words)]
        if not matches:
            return f"No skill matches. {await _list_names(registry)}"
        return "\n".join(describe_skill(skill) for skill in matches[:_MAX_LISTED])

    for skill_tool in (load_skill, read_skill_file, find_skills):
        mark_as_own(skill_tool)
    return [load_skill, read_skill_file, find_skills]


async def get_active_version(registry: SkillRegistry, active_skill: ActiveSkill) -> Skill | None:
    """The skill in the version that the run began with; after a restart maybe only in the newest one."""
    skill = await registry.get(active_skill.name, active_skill.version)
    if skill is None:
        skill = await registry.get(active_skill.name)
    return skill


def describe_skill(skill: Skill) -> str:
    """One line with the name and the description."""
    return f"- {skill.name}: {' '.join(skill.description.split())}"


def _find_active_skill(runtime: ToolRuntime, name: str) -> ActiveSkill | None:
    for active_skill in find_active_skills(runtime.state.get("messages") or ()):
        if active_skill.name == name:
            return active_skill
    return None


def _matches(skill: Skill, search_words: Sequence[str]) -> bool:
    text = f"{skill.name} {skill.description}".casefold()
    return all(word in text for word in search_words)


async def _list_names(registry: SkillRegistry) -> str:
    names = [skill.name for skill in await registry.list_usable()]
    if not names:
        return "There are no skills."
    more = ", …" if len(names) > _MAX_LISTED else ""
    return f"The skills are: {', '.join(names[:_MAX_LISTED])}{more}."


def _tool_result(
    runtime: ToolRuntime,
    tool_name: str,
    text: str,
    *,
    error: bool = False,
    metadata: dict[str, Any] | None = None,
) -> Command[Any]:
    message = ToolMessage(
        text,
        tool_call_id=runtime.tool_call_id,
        name=tool_name,
        status="error" if error else "success",
        additional_kwargs=metadata or {},
    )
    return Command(update={"messages": [message]})
