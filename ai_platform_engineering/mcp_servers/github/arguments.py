"""The arguments that several tools take, as the model sees them."""

from typing import Annotated

from pydantic import Field

# At least one character besides dots: `..` would be a step out of the path.
_REPO = r"^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
_OWNER = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
_SHA = r"^[0-9a-f]{40}([0-9a-f]{24})?$"

Owner = Annotated[
    str, Field(max_length=100, pattern=_OWNER, description="User or organisation: the part before the slash.")
]
OwnerOrMe = Annotated[
    str, Field(max_length=100, pattern=rf"{_OWNER}|^$", description="User or organisation; empty: me.")
]
Repo = Annotated[
    str, Field(max_length=100, pattern=_REPO, description="The repository's name: the part after the slash.")
]
Number = Annotated[int, Field(ge=1, description="The number after #.")]
RunId = Annotated[int, Field(ge=1, description="The run's id, as list_workflow_runs gives it.")]
PageNumber = Annotated[int, Field(ge=1, le=1000, description="Which page.")]
PerPage = Annotated[int, Field(ge=1, le=100, description="How many per page.")]
Query = Annotated[str, Field(min_length=1, max_length=500)]
Branch = Annotated[str, Field(min_length=1, max_length=250, description="The branch's name.")]
BranchOrDefault = Annotated[str, Field(max_length=250, description="The branch; empty: the default branch.")]
Ref = Annotated[str, Field(max_length=250, description="Branch, tag or commit; empty: the default branch.")]
Path = Annotated[str, Field(max_length=1000, description="Path within the repository, like docs/setup.md.")]
Title = Annotated[str, Field(min_length=1, max_length=256)]
Body = Annotated[str, Field(max_length=65_000, description="Text in Markdown.")]
Labels = Annotated[list[str], Field(max_length=50, description="Names of labels.")]
Assignees = Annotated[list[str], Field(max_length=10, description="Logins of users.")]
Sha = Annotated[str, Field(pattern=_SHA)]
Patches = Annotated[bool, Field(description="Also show the changed lines of each file.")]
