"""The company's repositories in GitHub: code, manifest and released commits of each service."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ai_platform_engineering.demo.estate.company import Company, CompanyService
from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.repository_builder import RepositoryBuilder
from ai_platform_engineering.demo.github.sample_data import BOT
from ai_platform_engineering.demo.github.state import Account, Commit, GitHubRepository, GitHubState

MANIFEST_PATH = "deploy/deployment.yaml"
REQUIRED_SETTINGS_PATH = "config/required-settings.txt"

_HOURS_OF_FIRST_RELEASE = 24 * 40
_HOURS_OF_PREVIOUS_RELEASE = 24 * 6
_BRANCH = "rename-setting"
_CODE_PATHS = {"Python": "src/settings.py", "Go": "settings.go", "TypeScript": "src/settings.ts"}
_CODE_LINES = {
    "Python": 'value = os.environ["{setting}"]',
    "Go": 'value := os.Getenv("{setting}")',
    "TypeScript": "export const value = process.env.{setting};",
}
_MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {namespace}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
        - name: {name}
          image: {image}
          env:
{environment}
"""


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit as it can be deployed; `version` is its release, or the short sha where it has none."""

    sha: str
    version: str
    message: str
    author: str
    committed_at: datetime


class RepositoryFiles:
    """Reads what a deployment needs to know from a repository at a commit."""

    def __init__(self, repository: GitHubRepository) -> None:
        self._repository = repository

    def find_revision(self, ref: str) -> Revision | None:
        """The revision of a branch, a tag or a sha; "HEAD" and "" are the default branch."""
        commit = history.resolve_ref(self._repository, "" if ref == "HEAD" else ref)
        if commit is None:
            return None
        version = commit.sha[:7]
        for release in self._repository.releases:
            if release.sha == commit.sha:
                version = release.tag
        return Revision(commit.sha, version, commit.message, commit.author, commit.date)

    def required_settings(self, sha: str) -> list[str]:
        return self._read(sha, REQUIRED_SETTINGS_PATH).split()

    def manifest_settings(self, sha: str) -> dict[str, str]:
        """Names and values of the variables that the manifest sets."""
        settings: dict[str, str] = {}
        for line in self._read(sha, MANIFEST_PATH).splitlines():
            name, _, value = line.strip().removeprefix("- {name: ").rstrip("}").partition(", value: ")
            if value and line.strip().startswith("- {name: "):
                settings[name] = value.strip('"')
        return settings

    def _read(self, sha: str, path: str) -> str:
        blob = self._repository.commits[sha].tree.get(path, "")
        return self._repository.blobs.get(blob, b"").decode(errors="replace")


def build_github_state(company: Company) -> GitHubState:
    """GitHub with the company's organization, its people and one repository for each service."""
    state = GitHubState()
    logins = [person.login for person in company.people]
    state.accounts[company.organization] = Account(
        id=state.next_id(),
        login=company.organization,
        type="Organization",
        name=company.name,
        members=[BOT, *logins],
    )
    state.accounts[BOT] = Account(id=state.next_id(), login=BOT)
    for person in company.people:
        state.accounts[person.login] = Account(id=state.next_id(), login=person.login, name=person.name)
    for service in company.services:
        repository = _ServiceRepository(company, service, state).build()
        state.repositories[repository.full_name] = repository
    return state


class _ServiceRepository:
    """Builds the repository of one service: first release, previous release, current release."""

    def __init__(self, company: Company, service: CompanyService, state: GitHubState) -> None:
        self._company = company
        self._service = service
        self._release = company.failing_release
        self._builder = RepositoryBuilder(state, company.organization, company.now)
        self._is_failing = service == self._release.service
        setting = self._release.old_setting if self._is_failing else f"{service.name.upper()}_LOG_LEVEL"
        self._settings = [setting]
        self._values = {setting: self._release.setting_value if self._is_failing else "info"}

    def build(self) -> GitHubRepository:
        service = self._service
        repository = self._builder.repository(
            service.name,
            service.description,
            private=True,
            language=service.language,
            topics=["service", service.team.name.lower()],
        )
        self._release_commit(
            repository, _HOURS_OF_FIRST_RELEASE, _first_version(service), "Begin the service"
        )
        self._release_commit(
            repository, _HOURS_OF_PREVIOUS_RELEASE, service.previous_version, "Log the time of each request"
        )
        if self._is_failing:
            self._merge_failing_pull(repository)
        else:
            self._release_commit(repository, 24 * 2, service.version, "Update dependencies")
        return repository

    def _release_commit(self, repository: GitHubRepository, hours: float, version: str, message: str) -> None:
        commit = self._builder.commit(
            repository,
            "main",
            self._service.team.members[2].login,
            hours,
            message,
            self._files(version, with_setting=self._settings[0]),
        )
        self._finish_release(repository, commit, hours - 0.2, version)

    def _merge_failing_pull(self, repository: GitHubRepository) -> None:
        """The change that renames the setting in the code and leaves the manifest's variables alone."""
        release = self._release
        service = self._service
        deployed_hours = (self._company.now - release.deployed_at) / timedelta(hours=1)
        message = (
            f"{release.pull_request_title}\n\nThe setting is now called {release.new_setting}"
            f" in all services; {service.name} reads the new name."
        )
        repository.branches[_BRANCH] = repository.branches["main"]
        code = self._files(service.version, with_setting=release.new_setting)
        commit = self._builder.commit(
            repository, _BRANCH, release.author.login, deployed_hours + 3, message, code
        )
        issue, pull = self._builder.pull(
            repository, release.pull_request_title, release.author.login, deployed_hours + 3, _BRANCH, message
        )
        reviewer = service.team.members[2].login
        pull.reviews = [self._builder.review(reviewer, deployed_hours + 1, "Looks good.", approves=True)]
        pull.merged_at = self._builder.ago(deployed_hours + 0.3)
        pull.merged_by = release.author.login
        pull.merge_sha = commit.sha
        self._builder.close(issue, deployed_hours + 0.3)
        repository.branches["main"] = commit.sha
        self._finish_release(repository, commit, deployed_hours + 0.2, service.version)

    def _finish_release(
        self, repository: GitHubRepository, commit: Commit, hours: float, version: str
    ) -> None:
        builder = self._builder
        title = commit.message.splitlines()[0]
        builder.release(repository, version, commit, hours, title)
        steps = ("Set up job", "Check out", "make test")
        builder.run(repository, "CI", commit, "main", hours, builder.job("test", *steps))

    def _files(self, version: str, *, with_setting: str) -> dict[str, bytes]:
        service = self._service
        code_path = _CODE_PATHS.get(service.language, "src/settings.txt")
        code = _CODE_LINES.get(service.language, "value = {setting}").format(setting=with_setting)
        lines = [f'            - {{name: {name}, value: "{value}"}}' for name, value in self._values.items()]
        manifest = _MANIFEST.format(
            name=service.name,
            namespace=self._company.namespace,
            replicas=service.replicas,
            image=image_name(self._company, service, version),
            environment="\n".join(lines),
        )
        readme = f"# {service.name}\n\n{service.description}. Owned by the team {service.team.name}.\n"
        return {
            "README.md": readme.encode(),
            code_path: f"{code}\n".encode(),
            REQUIRED_SETTINGS_PATH: f"{with_setting}\n".encode(),
            MANIFEST_PATH: manifest.encode(),
        }


def image_name(company: Company, service: CompanyService, version: str) -> str:
    return f"registry.{company.organization}.example/{service.name}:{version}"


def _first_version(service: CompanyService) -> str:
    return f"{service.previous_version.rpartition('.')[0]}.0-rc1"
