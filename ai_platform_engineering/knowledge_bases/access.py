"""Access to documents: who may see them, by the names of people and of groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.errors import Refused

GROUP_PREFIX = "group:"
MAX_NAMES = 1000  # that one document, datasource or group lists
MAX_NAME_CHARS = 300

VisibleTo = tuple[str, ...] | None  # people and `group:` names; None is everybody, and no names are nobody


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at documents: their name and their groups. Without a name only what everybody may see.

    `sees_all`: the operator of the knowledge base, never a person who asks a question."""

    names: tuple[str, ...] = ()
    sees_all: bool = False

    def may_see(self, visible_to: VisibleTo) -> bool:
        return self.sees_all or visible_to is None or not set(visible_to).isdisjoint(self.names)

    def check_may_see(self, visible_to: VisibleTo) -> None:
        """Raises Refused: what is for some people only does not come in once more for all."""
        if not self.may_see(visible_to):
            raise Refused("This location or name belongs to a datasource that only some people may see.")


ANYBODY = Viewer()
OPERATOR = Viewer(sees_all=True)


def create_viewer(principal: str | None, groups: Sequence[str]) -> Viewer:
    """The viewer with this name. A name that looks like a group's is nobody's: it would have the group's
    rights."""
    if not principal or principal.startswith(GROUP_PREFIX):
        return ANYBODY
    return Viewer((principal, *(f"{GROUP_PREFIX}{group}" for group in groups)))


def parse_visible_to(names: Sequence[str] | None) -> VisibleTo:
    """A checked list of names, each once. Raises Refused."""
    if names is None:
        return None
    if not names:
        raise Refused(
            "visible_to is empty. Leave it out for everybody, or name people and groups (group:sre)."
        )
    check_names(names, "visible_to")
    return tuple(dict.fromkeys(names))


def check_names(names: Sequence[str], field: str) -> None:
    """Raises Refused for what cannot be the name of a person or a group."""
    if len(names) > MAX_NAMES:
        raise Refused(f"{field} has {len(names)} names; the limit is {MAX_NAMES}. Use a group.")
    for name in names:
        bare = name.removeprefix(GROUP_PREFIX)
        if not bare.strip() or bare != bare.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise Refused(
                f"{field} contains a name that is empty, too long, or has leading or trailing spaces."
            )
