"""The state of an estate at a moment, to compare with an earlier one."""

from pydantic import BaseModel, ConfigDict

from ai_platform_engineering.demo.estate.estate import Estate, Health


class _StateModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class ServiceState(_StateModel):
    """What runs of a service. Its deployments are counted: going back and forth is a change, too."""

    health: Health
    version: str
    replicas: int
    settings: dict[str, str]
    deployments: int


class TicketState(_StateModel):
    """A ticket as people see it."""

    project: str
    summary: str
    description: str
    status: str


class EstateState(_StateModel):
    """Everything in the estate that agents can change."""

    services: dict[str, ServiceState] = {}
    tickets: dict[str, TicketState] = {}
    branches: dict[str, str] = {}

    @property
    def is_settled(self) -> bool:
        """Whether no deployment is on its way."""
        return all(service.health != Health.PROGRESSING for service in self.services.values())

    @classmethod
    def of(cls, estate: Estate) -> "EstateState":
        services: dict[str, ServiceState] = {}
        for service in estate.company.services:
            deployment = estate.deployment(service)
            services[service.name] = ServiceState(
                health=estate.health(service),
                version=deployment.current.revision.version,
                replicas=deployment.replicas,
                settings=deployment.settings,
                deployments=deployment.current.id,
            )
        return cls(services=services, branches=_list_branches(estate))


def _list_branches(estate: Estate) -> dict[str, str]:
    branches: dict[str, str] = {}
    for name, repository in estate.github.repositories.items():
        branches |= {f"{name}@{branch}": sha for branch, sha in repository.branches.items()}
    return branches
