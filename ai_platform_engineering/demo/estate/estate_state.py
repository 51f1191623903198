"""The state of an estate at a moment, to compare with an earlier one."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from ai_platform_engineering.demo.estate.estate import Estate, Health

TICKETS = "tickets"  # the kind of Jira's records
_BRANCHES = "branches"
_GITHUB_ISSUES = "issues"


class _StateModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class ServiceState(_StateModel):
    """What runs of a service. Its deployments are counted: going back and forth is a change, too."""

    health: Health
    version: str
    replicas: int
    settings: dict[str, str]
    deployments: int
    restarted_at: str | None = None
    replaced_pods: int = 0


class EstateState(_StateModel):
    """Everything in the estate that agents can change: services, and the records of systems by kind."""

    services: dict[str, ServiceState]
    records: dict[str, dict[str, dict[str, str]]] = {}

    @property
    def is_settled(self) -> bool:
        """Whether no deployment is on its way."""
        return all(service.health != Health.PROGRESSING for service in self.services.values())

    @classmethod
    def of(cls, estate: Estate) -> "EstateState":
        records = {**estate.list_records(), **_list_github_records(estate)}
        return cls.model_validate({"services": _list_services(estate), "records": records})

    def describe_changes(self, later: "EstateState") -> list[str]:
        """What is different later, each by its kind and name."""
        changes = _describe_differences("service", self.services, later.services)
        for kind in sorted(self.records.keys() | later.records.keys()):
            changes += _describe_differences(kind, self.records.get(kind, {}), later.records.get(kind, {}))
        return changes


def _describe_differences(kind: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    names = sorted(old.keys() | new.keys())
    return [f"{kind} {name}" for name in names if old.get(name) != new.get(name)]


def _list_services(estate: Estate) -> dict[str, ServiceState]:
    services: dict[str, ServiceState] = {}
    for service in estate.company.services:
        deployment = estate.deployment(service)
        restarted_at = deployment.restarted_at
        services[service.name] = ServiceState(
            health=estate.health(service),
            version=deployment.current.revision.version,
            replicas=deployment.replicas,
            settings=deployment.settings,
            deployments=deployment.current.id,
            restarted_at=restarted_at.isoformat() if restarted_at is not None else None,
            replaced_pods=len(deployment.replaced_pods),
        )
    return services


def _list_github_records(estate: Estate) -> dict[str, dict[str, dict[str, str]]]:
    branches: dict[str, dict[str, str]] = {}
    issues: dict[str, dict[str, str]] = {}
    for name, repository in estate.github.repositories.items():
        for branch, sha in repository.branches.items():
            branches[f"{name}@{branch}"] = {"sha": sha}
        for number, issue in repository.issues.items():
            issues[f"{name}#{number}"] = {
                "title": issue.title,
                "state": issue.state,
                "comments": str(len(issue.comments)),
            }
    return {_BRANCHES: branches, _GITHUB_ISSUES: issues}
