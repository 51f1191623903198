"""The exceptions that cross a layer; their text is written for the person who reads it."""


class CaipeError(Exception):
    """Base of all errors of ours; `str(error)` says what is wrong and what to do."""

    code = "internal"
    retryable = False


class ConfigurationError(CaipeError):
    """A setting is missing or wrong; the text names the variable."""

    code = "configuration"


class DatabaseUnavailable(CaipeError):
    """A database cannot be used now; the text names it without its password.

    `problem` says what is wrong, `remedy` what to do."""

    code = "database_unavailable"
    retryable = True

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy

    def describe(self, consequence: str) -> str:
        """The text with a sentence on what follows; the remedy, often a command, stays at its end."""
        return f"{self.problem} {consequence} {self.remedy}"


class ModelNotConfigured(ConfigurationError):
    code = "model_not_configured"

    def __init__(self) -> None:
        super().__init__(
            "No language model is configured. Set LLM_MODEL, for example "
            'LLM_MODEL="openai:gpt-5-mini" with OPENAI_API_KEY (or OPENAI_BASE_URL for a compatible server), '
            "in the environment or in .env, and start again."
        )


class TooManySteps(CaipeError):
    code = "too_many_steps"

    def __init__(self) -> None:
        super().__init__("I stopped: the request needed too many steps. A narrower question may help.")


class EmptyAnswer(CaipeError):
    code = "empty_answer"
    retryable = True

    def __init__(self) -> None:
        super().__init__("The model gave no answer, even on a second attempt. Trying again may help.")


class ModelAnswerTooLarge(CaipeError):
    """The model's server sent more than is read; `variable` is the setting with the limit."""

    code = "model_answer_too_large"

    def __init__(self, variable: str, limit: int) -> None:
        super().__init__(
            f"The model's server sent more than is allowed ({variable}={limit}), so I stopped reading. "
            "Ask for less at once, or raise the limit."
        )


class RunTimeout(CaipeError):
    code = "timeout"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"I stopped: the request took longer than {seconds:g} seconds. A narrower question may help."
        )


class AgentUnavailable(CaipeError):
    """A domain agent or its tools cannot be reached."""

    code = "agent_unavailable"
    retryable = True


class Refused(CaipeError):
    """A request that cannot be accepted as it is."""

    code = "refused"


class WrongState(Refused):
    """The task is in a state that takes no message."""

    code = "wrong_state"


class Overloaded(WrongState):
    """Too many questions wait already; the same one may be accepted later."""

    code = "overloaded"
    retryable = True


class UnsupportedPart(Refused):
    """A message part that is not text, data or a readable text file."""

    code = "unsupported_part"


class SourceUnavailable(CaipeError):
    """Where documents or skills come from cannot be read now; nothing is known about what is there."""

    code = "source_unavailable"
    retryable = True


class RunNotFound(CaipeError):
    code = "run_not_found"


class MessageConflict(Refused):
    """A message id that was used before with other content."""

    code = "message_conflict"

    def __init__(self) -> None:
        super().__init__(
            "This message id was already used with different content. Send a new message with its own id."
        )


class Fenced(CaipeError):
    """A write with an old epoch, or after the end of the run; the writer has lost the run and must stop."""

    code = "fenced"
