"""The estate: what all stand-ins share, so that a change in one system is seen in the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from ai_platform_engineering.demo.estate.company import Company, CompanyService, build_company
from ai_platform_engineering.demo.estate.repositories import RepositoryFiles, Revision, build_github_state

ROLLOUT_SECONDS = 6.0  # a deployment is Progressing for this long
MAX_HISTORY = 50  # deployments that a service remembers

Clock = Callable[[], datetime]


class Health(StrEnum):
    """Health of a service, in Argo CD's words."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"


HealthObserver = Callable[[CompanyService, Health], None]
# What a system stores, by name or key: the values that people see of each.
Records = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class DeployedRevision:
    """One entry of a service's deployment history; `id` is Argo CD's number of it."""

    id: int
    revision: Revision
    started_at: datetime
    finished_at: datetime
    initiated_by: str


@dataclass(slots=True)
class Deployment:
    """What runs of one service: its history, the oldest first, and changes in the cluster by hand."""

    service: CompanyService
    history: list[DeployedRevision]
    replicas: int
    settings: dict[str, str] = field(default_factory=dict)
    restarted_at: datetime | None = None
    replaced_pods: dict[int, datetime] = field(default_factory=dict)

    @property
    def current(self) -> DeployedRevision:
        return self.history[-1]

    @property
    def previous(self) -> DeployedRevision | None:
        """The newest entry with another revision than the current one."""
        for entry in reversed(self.history):
            if entry.revision.sha != self.current.revision.sha:
                return entry
        return None


class UnknownRevision(LookupError):
    """A service has no such revision or deployment."""


class Estate:
    """One company's systems: people and services, GitHub's repositories and what is deployed.

    All stand-ins run in one process and one event loop, so methods need no lock. Health follows from the
    clock and from what is deployed; observers are told of changes by `announce_health`, which every
    stand-in calls before it handles a request.
    """

    def __init__(self, company: Company, clock: Clock, rollout_seconds: float = ROLLOUT_SECONDS) -> None:
        self.company = company
        self.github = build_github_state(company)
        self._clock = clock
        self._rollout = timedelta(seconds=rollout_seconds)
        self._observers: list[HealthObserver] = []
        self._record_readers: dict[str, Callable[[], Records]] = {}
        self._deployments = {
            service.name: Deployment(service, self._build_history(service), service.replicas)
            for service in company.services
        }
        self._announced = {service.name: self.health(service) for service in company.services}

    @property
    def now(self) -> datetime:
        return self._clock()

    def deployment(self, service: CompanyService) -> Deployment:
        return self._deployments[service.name]

    def health(self, service: CompanyService) -> Health:
        deployment = self.deployment(service)
        if self.now < deployment.current.finished_at:
            return Health.PROGRESSING
        if self.missing_settings(service, deployment.current.revision):
            return Health.DEGRADED
        return Health.HEALTHY

    def missing_settings(self, service: CompanyService, revision: Revision) -> list[str]:
        """Settings that the revision's code requires and neither manifest nor cluster sets."""
        files = self.files(service)
        available = files.manifest_settings(revision.sha).keys() | self.deployment(service).settings.keys()
        return [name for name in files.required_settings(revision.sha) if name not in available]

    def files(self, service: CompanyService) -> RepositoryFiles:
        return RepositoryFiles(self.github.repositories[f"{self.company.organization}/{service.name}"])

    def deploy(self, service: CompanyService, ref: str, initiated_by: str) -> DeployedRevision:
        """Deploys a branch, tag or sha of the service's repository. Raises UnknownRevision."""
        revision = self.files(service).find_revision(ref)
        if revision is None:
            raise UnknownRevision(f"{service.name} has no revision {ref}")
        deployment = self.deployment(service)
        entry = DeployedRevision(
            id=deployment.current.id + 1,
            revision=revision,
            started_at=self.now,
            finished_at=self.now + self._rollout,
            initiated_by=initiated_by,
        )
        deployment.history = [*deployment.history, entry][-MAX_HISTORY:]
        self.announce_health()
        return entry

    def roll_back(
        self, service: CompanyService, initiated_by: str, deployment_id: int | None = None
    ) -> DeployedRevision:
        """Deploys an earlier entry of the history again, by default the previous one.

        Raises UnknownRevision.
        """
        deployment = self.deployment(service)
        target = deployment.previous
        if deployment_id is not None:
            target = next((entry for entry in deployment.history if entry.id == deployment_id), None)
        if target is None:
            raise UnknownRevision(f"{service.name} has no such earlier deployment")
        return self.deploy(service, target.revision.sha, initiated_by)

    def change_deployment(
        self, service: CompanyService, *, replicas: int | None = None, settings: dict[str, str] | None = None
    ) -> None:
        """A change in the cluster by hand: the number of pods, or variables beside those of the manifest."""
        deployment = self.deployment(service)
        if replicas is not None:
            deployment.replicas = replicas
        if settings is not None:
            deployment.settings = settings
        self.announce_health()

    def restart(self, service: CompanyService) -> None:
        """New pods of the same revision."""
        self.deployment(service).restarted_at = self.now

    def replace_pod(self, service: CompanyService, number: int) -> None:
        """A new pod in the place of one that was deleted; pods are numbered from 0."""
        self.deployment(service).replaced_pods[number] = self.now

    def register_records(self, kind: str, read_records: Callable[[], Records]) -> None:
        """Lets those who look at the estate's state see what a stand-in stores itself, such as tickets."""
        self._record_readers[kind] = read_records

    def list_records(self) -> dict[str, Records]:
        """What stand-ins store, by kind, as it is now."""
        return {kind: read_records() for kind, read_records in self._record_readers.items()}

    def observe_health(self, observer: HealthObserver) -> None:
        """Calls the observer with each later change of a service's health."""
        self._observers.append(observer)

    def announce_health(self) -> None:
        """Tells observers which services have another health than when it was last announced."""
        for service in self.company.services:
            health = self.health(service)
            if health == self._announced[service.name]:
                continue
            self._announced[service.name] = health
            for observer in self._observers:
                observer(service, health)

    def _build_history(self, service: CompanyService) -> list[DeployedRevision]:
        repository = self.github.repositories[f"{self.company.organization}/{service.name}"]
        files = RepositoryFiles(repository)
        history: list[DeployedRevision] = []
        for number, release in enumerate(repository.releases, start=1):
            revision = files.find_revision(release.tag)
            if revision is None:
                continue
            started_at = release.published_at + timedelta(minutes=10)
            if release.tag == service.version and service == self.company.failing_release.service:
                started_at = self.company.failing_release.deployed_at
            history.append(
                DeployedRevision(number, revision, started_at, started_at + self._rollout, release.author)
            )
        return history


def build_estate(seed: int, clock: Clock | None = None) -> Estate:
    """The estate of a seed, as it is now."""
    read_clock = clock or _utc_now
    return Estate(build_company(seed, read_clock()), read_clock)


def _utc_now() -> datetime:
    return datetime.now(UTC)
