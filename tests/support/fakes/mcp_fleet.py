"""An MCP server on stdio with as many tools as the largest real one: 118, with more than 150,000 characters
of schema. One of them returns a list of 800 applications.

    python mcp_fleet.py CALLS ODD

Each call of a tool is a line in the file CALLS; ODD is the name of the one application that is not healthy.
Standard library only.
"""

import json
import sys
from typing import Any

NOUNS = (
    "branch",
    "board",
    "cluster",
    "commit",
    "deployment",
    "environment",
    "epic",
    "group",
    "issue",
    "label",
    "member",
    "merge_request",
    "milestone",
    "pipeline",
    "project",
    "release",
    "runner",
    "schedule",
    "snippet",
    "tag",
    "variable",
    "webhook",
    "wiki_page",
)
VERBS = ("list", "get", "create", "update", "delete")
APPLICATIONS = 800
COUNT = 118


def list_tools() -> list[dict[str, Any]]:
    tools = [_build_tool(verb, noun) for verb in VERBS for noun in NOUNS]
    applications = _build_tool("list", "application", "All applications with their health.")
    # More than half of the budget by itself.
    applications["inputSchema"]["properties"]["selector"] = {"type": "string", "description": "x" * 15_000}
    tools.append(applications)
    tools.append(_build_tool("get", "license"))
    tools.append(_build_tool("get", "health"))
    return tools


def _build_tool(verb: str, noun: str, description: str = "") -> dict[str, Any]:
    words = noun.replace("_", " ")
    properties = {}
    for name in ("project", "name", "state", "search", "order_by", "page"):
        text = (
            f"The {name} of the {words}, as the interface of the server takes it. " + "It may be empty. " * 6
        )
        properties[name] = {"type": "string", "description": text, "title": name.title()}
    schema = {"type": "object", "properties": properties, "required": ["name"] if verb == "delete" else []}
    hints: dict[str, bool] = {"readOnlyHint": verb in ("list", "get")}
    if verb == "delete":
        hints["destructiveHint"] = True
    plural = "s" if verb == "list" else ""
    text = description or f"{verb.title()} a {words}. " + "See the manual for what else it takes. " * 4
    return {
        "name": f"{verb}_{noun}{plural}",
        "description": text,
        "inputSchema": schema,
        "annotations": hints,
    }


def list_applications(odd: str) -> str:
    applications = []
    for number in range(APPLICATIONS):
        is_odd = number == APPLICATIONS // 2
        applications.append(
            {
                "metadata": {
                    "name": odd if is_odd else f"app-{number:03}",
                    "namespace": f"team-{number % 9}",
                },
                "spec": {"source": {"repoURL": f"https://git.example.com/{number}"}, "text": "x" * 1_000},
                "status": {"health": {"status": "Degraded" if is_odd else "Healthy"}},
            }
        )
    return json.dumps(applications)


def call_tool(name: str, arguments: dict[str, Any], calls: str, odd: str) -> dict[str, Any]:
    with open(calls, "a") as file:
        file.write(json.dumps([name, arguments]) + "\n")
    text = f"{name} of {arguments.get('name', 'nothing')} is done"
    if name == "list_applications":
        text = list_applications(odd)
    return {"content": [{"type": "text", "text": text}]}


def main(calls: str, odd: str) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        params = request.get("params") or {}
        result: dict[str, Any] = {}
        match request["method"]:
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fleet", "version": "1.0"},
                }
            case "tools/list":
                result = {"tools": list_tools()}
            case "tools/call":
                result = call_tool(params["name"], params.get("arguments") or {}, calls, odd)
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
