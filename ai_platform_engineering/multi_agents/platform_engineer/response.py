"""The structured answer, on with `USE_STRUCTURED_RESPONSE=true`."""

from pydantic import BaseModel, Field


class CitedSource(BaseModel):
    title: str = Field(description="The document's or page's title.")
    url: str | None = Field(None, description="Its address, if known.")
    document_id: str | None = Field(None, description="Its id in the knowledge base, if it came from there.")


class PlatformEngineerResponse(BaseModel):
    """The final answer to the user. Call it once, when the work is done."""

    content: str = Field(description="The whole answer for the user, in Markdown.")
    citations: list[CitedSource] = Field(
        default_factory=list, description="The sources that the answer relies on."
    )
