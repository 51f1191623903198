"""Settings of connectors: the systems that documents are read from. Agents for the same systems use the same
variables."""

from pydantic import Field, SecretStr

from ai_platform_engineering.core.setting_types import Names, SettingsGroup


class SourceSettings(SettingsGroup):
    """Addresses and credentials. An address is checked when a datasource uses it: a server starts without."""

    atlassian_url: str | None = Field(None, alias="ATLASSIAN_API_URL")
    atlassian_email: str | None = Field(None, alias="ATLASSIAN_EMAIL")
    atlassian_token: SecretStr | None = Field(None, alias="ATLASSIAN_TOKEN")
    confluence_url: str | None = Field(None, alias="CONFLUENCE_API_URL")
    confluence_token: SecretStr | None = Field(None, alias="CONFLUENCE_PERSONAL_TOKEN")  # Data Center
    # Where these are set, agents and connectors read nothing else.
    confluence_spaces: Names = Field((), alias="CONFLUENCE_SPACES_FILTER")
    jira_projects: Names = Field((), alias="JIRA_PROJECTS_FILTER")
    jira_token: SecretStr | None = Field(None, alias="JIRA_PERSONAL_TOKEN")  # Data Center
    github_url: str = Field("https://api.github.com", alias="GITHUB_API_URL")
    github_token: SecretStr | None = Field(None, alias="GITHUB_TOKEN")
    github_other_token: SecretStr | None = Field(None, alias="GITHUB_PERSONAL_ACCESS_TOKEN")
    slack_token: SecretStr | None = Field(None, alias="SLACK_BOT_TOKEN")
    slack_url: str = Field("https://slack.com/api", alias="SLACK_API_URL")
    backstage_url: str | None = Field(None, alias="BACKSTAGE_URL")
    backstage_app_url: str | None = Field(None, alias="BACKSTAGE_APP_URL")  # for links; not set: the same
    backstage_token: SecretStr | None = Field(None, alias="BACKSTAGE_API_TOKEN")
    s3_endpoint: str | None = Field(None, alias="S3_ENDPOINT_URL")  # not set: Amazon's of the region
    aws_region: str | None = Field(None, alias="AWS_REGION")
    aws_default_region: str | None = Field(None, alias="AWS_DEFAULT_REGION")
    aws_key_id: str | None = Field(None, alias="AWS_ACCESS_KEY_ID")
    aws_secret: SecretStr | None = Field(None, alias="AWS_SECRET_ACCESS_KEY")
    aws_session_token: SecretStr | None = Field(None, alias="AWS_SESSION_TOKEN")
    # Of one request, all its attempts together: rate limits are waited for.
    wait_seconds: float = Field(300.0, alias="RAG_SOURCE_MAX_WAIT_SECONDS", ge=0)
    # How often everything is listed where that takes many requests: deleted documents are found then.
    listing_hours: float = Field(24.0, alias="RAG_SOURCE_LISTING_HOURS", ge=0)
