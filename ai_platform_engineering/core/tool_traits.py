"""The names of the tools that the supervisor treats specially."""

DELEGATION = "task"  # the tool that delegates; its argument names the agent
UNKNOWN_AGENT = "unknown"  # a delegation that names none; it fails
PLANNING = "write_todos"
ASKING = "CAIPEAgentResponse"  # the tool that asks a person with a form
WAITING = "wait"
