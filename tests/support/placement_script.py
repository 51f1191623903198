"""What the models say in the conversation that is held in every placement: three questions, three agents."""

from tests.support.fakes.request import Request
from tests.support.fakes.script import Attempts, Book, Call, Die, Fail, Say, Script, Turn

QUESTIONS = ("Check the release.", "What did you find before?", "Do all of it twice.")

TODOS = [
    "[Atlas] Find the release",
    "[Harbor] Check the east dock",
    "[Harbor] Check the west dock",
    "[Vault] Open the vault",
    "Sum up",
]

TWICE = [
    "[Atlas] Find the release",
    "[Harbor] Check the east dock",
    "[Harbor] Check the west dock",
    "[Vault] Knock",
    "[Vault] Break it",
    "Sum up",
]


def _task(agent: str, text: str, step: int | None = None) -> Call:
    return Call(
        "task", {"description": text, "subagent_type": agent, **({"step_id": f"step-{step}"} if step else {})}
    )


def _recall(request: Request) -> Turn:
    """Says what the agent remembers: its earlier assignments and answers."""
    earlier = [
        message.text for message in request.messages[:-1] if message.role != "tool" and not message.tool_calls
    ]
    return Turn(Say(f"I remember: {' / '.join(earlier)}"))


def _looks(at: str, before: str) -> Script:
    return Script(
        Turn(Say(before), Call("look", {"at": at})), Turn(Say(f"The {at} has {{{{tool:look.count}}}}."))
    )


CHECK = Script(
    Turn(Say("I plan first."), Call("write_todos", {"title": "Release", "todos": TODOS})),
    Turn(
        Say("Now all of them at once."),
        _task("atlas", "Find the release.", 1),
        _task("harbor", "Check the east dock.", 2),
        _task("harbor", "Check the west dock.", 3),
        _task("vault", "Open the vault.", 4),
    ),
    Turn(Say("Atlas shall say it again."), _task("atlas", "What do you remember?")),
    Turn(Say("Release: {{tool:atlas}} Docks: {{tool:harbor}} Vault: {{tool:vault}}")),
)
BEFORE = Script(
    Turn(
        Say("I ask them again."),
        _task("atlas", "What do you remember?"),
        _task("harbor", "What do you remember?"),
        _task("vault", "Break."),
    ),
    Turn(Say("Atlas: {{tool:atlas}} Harbor: {{tool:harbor}} Vault: {{tool:vault}}")),
)
# Two delegations on a step, two steps of an agent without an id, failures, and one more try.
ALL_TWICE = Script(
    Turn(Say("I plan it all."), Call("write_todos", {"todos": TWICE})),
    Turn(
        Say("Everything at once."),
        _task("atlas", "Find the release.", 1),
        _task("harbor", "Check the east dock."),
        _task("vault", "Knock.", 4),
        _task("harbor", "Check the west dock."),
        _task("atlas", "Find it again.", 1),
        _task("vault", "Break.", 4),
        _task("vault", "Break."),
    ),
    Turn(Say("The vault once more."), _task("vault", "Knock."), _task("nobody", "Help.", 2)),
    Turn(Say("Docks: {{tool:harbor}} Vault: {{tool:vault}}")),
)
REMEMBER = Script(_recall)
BROKEN = Script(Turn(Fail(400, message="no such lock")))
CASTING = Book.for_model(
    {
        "supervisor": Book({"^Check": CHECK, "^What": BEFORE, "^Do": ALL_TWICE}),
        "atlas": Book(
            {
                "^Find": Script(
                    Turn(Say("I look at the map."), Call("look", {"at": "release"})),
                    Turn(Call("walk", {"steps": 2})),
                    Turn(Say("The release has {{tool:look.count}}.")),
                ),
                "^What": REMEMBER,
            }
        ),
        "harbor": Book(
            {
                "east": _looks("east dock", "To the east."),
                "west": _looks("west dock", "To the west."),
                "^What": Script(Turn(Fail(503))),
            }
        ),
        "spare": Book({"^What": REMEMBER, "^Break": BROKEN}),
        "vault": Book(
            {
                "^Open": Script(
                    Turn(Say("I try the handle."), Call("fail", {"text": "the handle is stuck"})),
                    Turn(Say("It said {{tool:fail}}, so I use the key."), Call("look", {"at": "vault"})),
                    Attempts(Turn(Say("The vault "), Die()), Turn(Say("The vault has {{tool:look.count}}."))),
                ),
                "^Break": BROKEN,
                "^Knock": Script(Turn(Say("Nobody is in."))),
            }
        ),
    }
)
