"""The prompts that Slack suggests where somebody begins to talk to the bot: only what works now."""

from ai_platform_engineering.a2a.rest_client import RestApi
from ai_platform_engineering.core.errors import CaipeError

Prompt = dict[str, str]

MAX_PROMPTS = 4  # of Slack
_MAX_TITLE = 75
# Works in every installation; the app's manifest lists it too.
FIRST_PROMPT: Prompt = {
    "title": "What can you do?",
    "message": "What can you do, and which agents do you have?",
}
_DOCUMENTS_PROMPT: Prompt = {"title": "Search the documents", "message": "How do I onboard a service?"}


async def list_prompts(supervisor: RestApi) -> list[Prompt]:
    """The prompts for the workflows that can start, and for the knowledge base when there is one."""
    prompts = [FIRST_PROMPT]
    try:
        workflows = (await supervisor("GET", "/workflows"))["workflows"]
        own_tools = (await supervisor("GET", "/tools"))["tools"].get("supervisor", ())
    except CaipeError:  # whoever asks learns more from the answer
        return prompts
    for workflow in workflows:
        if workflow["available"]:
            title = str(workflow["title"])
            prompts.append({"title": title[:_MAX_TITLE], "message": title})
    if "search" in own_tools:
        prompts[MAX_PROMPTS - 1 :] = [_DOCUMENTS_PROMPT]
    return prompts[:MAX_PROMPTS]
