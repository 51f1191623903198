"""The agent card for callers without a key: what the protocol needs, and nothing about agents and tools."""

from a2a.types import AgentCard, AgentSkill

_DESCRIPTION = "An A2A agent. With a key, its extended card says what it can do."


def public_card(card: AgentCard) -> AgentCard:
    """The card without descriptions, skills and parameters of extensions."""
    public = AgentCard()
    public.CopyFrom(card)
    public.description = _DESCRIPTION
    public.ClearField("skills")
    skill = AgentSkill(id="chat", name=card.name, description=_DESCRIPTION, tags=["chat"])
    public.skills.append(skill)
    for extension in public.capabilities.extensions:
        extension.ClearField("params")
    return public
