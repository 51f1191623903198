"""The company that the demo estate shows: people, teams, services and one failing release, random by seed.

Every stand-in is filled from one `Company`, so that all systems tell the same story: the incident in
PagerDuty, the degraded application in Argo CD, the crashing pods in Kubernetes, the commit in GitHub, the
ticket in Jira and the runbook in Confluence belong together.
"""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

FAILING_SERVICE = "checkout"
NAMESPACE = "shop"  # in Kubernetes, of every company

_COMPANY_NAMES = ("Larkfield", "Northwharf", "Tidewell", "Marrowby", "Quillstone", "Fernhaven")
_FIRST_NAMES = ("Ada", "Bo", "Chidi", "Dana", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kaya", "Lior")
_LAST_NAMES = ("Berg", "Castillo", "Diallo", "Eriksen", "Fontaine", "Grewal", "Haddad", "Ishii", "Jansen")
_SETTINGS = ("PAYMENT_TIMEOUT", "CART_SERVICE_URL", "TAX_REGION", "PRICE_CURRENCY", "STOCK_RESERVE_TTL")


@dataclass(frozen=True, slots=True)
class Person:
    login: str
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Team:
    """A team; `project` is the key of its Jira project."""

    name: str
    project: str
    members: tuple[Person, ...]

    @property
    def on_call(self) -> Person:
        return self.members[0]


@dataclass(frozen=True, slots=True)
class CompanyService:
    """A service with one repository, one Argo CD application and one deployment, all of its name."""

    name: str
    description: str
    team: Team
    version: str
    previous_version: str
    replicas: int
    language: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailingRelease:
    """Why `checkout` fails: its new version reads a renamed setting that the manifest does not set.

    The commit renames `old_setting` to `new_setting` in the code and leaves the deployment's manifest alone.
    """

    service: CompanyService
    author: Person
    old_setting: str
    new_setting: str
    setting_value: str
    pull_request_title: str
    deployed_at: datetime
    incident_number: int
    incident_opened_at: datetime

    @property
    def log_line(self) -> str:
        """What each crashing container logs last."""
        return f"FATAL configuration: required setting {self.new_setting} is not set"


@dataclass(frozen=True, slots=True)
class Company:
    name: str
    seed: int
    now: datetime
    teams: tuple[Team, ...]
    services: tuple[CompanyService, ...]
    failing_release: FailingRelease

    @property
    def organization(self) -> str:
        """The GitHub organization, also the namespace in the container registry."""
        return self.name.lower()

    @property
    def namespace(self) -> str:
        """The namespace in Kubernetes in which all services run."""
        return NAMESPACE

    @property
    def people(self) -> tuple[Person, ...]:
        return tuple(person for team in self.teams for person in team.members)

    def find_service(self, name: str) -> CompanyService | None:
        for service in self.services:
            if service.name == name:
                return service
        return None


def build_company(seed: int, now: datetime) -> Company:
    """The same company for the same seed; its times are counted back from `now`."""
    choice = random.Random(seed)
    name = choice.choice(_COMPANY_NAMES)
    people = _build_people(choice, name)
    store_team = Team("Store", "STORE", tuple(people[0:3]))
    payments_team = Team("Payments", "PAY", tuple(people[3:6]))
    platform_team = Team("Platform", "PLAT", tuple(people[6:9]))
    services = (
        _build_service(
            choice,
            FAILING_SERVICE,
            "Takes orders: basket, payment and confirmation",
            store_team,
            "Python",
            ("cart", "payments", "inventory"),
        ),
        _build_service(choice, "cart", "Baskets of customers", store_team, "Go", ("inventory",)),
        _build_service(choice, "storefront", "The web shop", store_team, "TypeScript", ("checkout", "cart")),
        _build_service(choice, "payments", "Charges, refunds and receipts", payments_team, "Python"),
        _build_service(choice, "ledger", "Bookings of all payments", payments_team, "Java", ("payments",)),
        _build_service(choice, "inventory", "Stock of all warehouses", platform_team, "Go"),
        _build_service(choice, "notifications", "Mails and messages to customers", platform_team, "Python"),
    )
    return Company(
        name=name,
        seed=seed,
        now=now,
        teams=(store_team, payments_team, platform_team),
        services=services,
        failing_release=_build_failing_release(choice, services[0], now),
    )


def _build_people(choice: random.Random, company: str) -> list[Person]:
    first_names = choice.sample(_FIRST_NAMES, len(_LAST_NAMES))
    last_names = choice.sample(_LAST_NAMES, len(_LAST_NAMES))
    people = []
    for first_name, last_name in zip(first_names, last_names, strict=True):
        login = f"{first_name}-{last_name}".lower()
        email = f"{first_name}.{last_name}@{company}.example".lower()
        people.append(Person(login, f"{first_name} {last_name}", email))
    return people


def _build_service(
    choice: random.Random,
    name: str,
    description: str,
    team: Team,
    language: str,
    depends_on: tuple[str, ...] = (),
) -> CompanyService:
    major = choice.randint(1, 5)
    minor = choice.randint(1, 30)
    return CompanyService(
        name=name,
        description=description,
        team=team,
        version=f"v{major}.{minor}.0",
        previous_version=f"v{major}.{minor - 1}.{choice.randint(0, 4)}",
        replicas=choice.randint(2, 4),
        language=language,
        depends_on=depends_on,
    )


def _build_failing_release(choice: random.Random, service: CompanyService, now: datetime) -> FailingRelease:
    old_setting = choice.choice(_SETTINGS)
    suffix = choice.choice(("_V2", "_DEFAULT", "_OVERRIDE"))
    deployed_at = now - timedelta(minutes=choice.randint(25, 50))
    return FailingRelease(
        service=service,
        author=service.team.members[1],
        old_setting=old_setting,
        new_setting=old_setting + suffix,
        setting_value=str(choice.randint(10, 99)),
        pull_request_title=f"Read {old_setting}{suffix} instead of {old_setting}",
        deployed_at=deployed_at,
        incident_number=choice.randint(1200, 8900),
        incident_opened_at=deployed_at + timedelta(minutes=4),
    )
