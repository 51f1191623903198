"""The names of the tools that the supervisor treats specially."""

DELEGATION_TOOL = "task"  # the tool that delegates; its argument names the agent
UNKNOWN_AGENT = "unknown"  # a delegation that names none; it fails
PLANNING_TOOL = "write_todos"
USER_INPUT_TOOL = "CAIPEAgentResponse"  # the tool that asks a person with a form
WAIT_TOOL = "wait"
