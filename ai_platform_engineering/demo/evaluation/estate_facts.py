"""What is true in an estate, by name, for the cases of an evaluation."""

from ai_platform_engineering.demo.estate.company import CompanyService, Person, Team
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.repositories import MANIFEST_PATH
from ai_platform_engineering.demo.jira.sample_tickets import find_key_tickets


def collect_facts(estate: Estate) -> dict[str, str]:
    """Facts by name. They describe the estate as it is built: before anything was changed."""
    company = estate.company
    facts = {
        "company.name": company.name,
        "company.organization": company.organization,
        "company.namespace": company.namespace,
    }
    for team in company.teams:
        facts |= _team_facts(team)
    for service in company.services:
        facts |= _service_facts(estate, service)
    return facts | _failure_facts(estate)


def _team_facts(team: Team) -> dict[str, str]:
    prefix = team.name.lower()
    return {
        f"{prefix}.team": team.name,
        f"{prefix}.project": team.project,
        **_person_facts(f"{prefix}.on_call", team.on_call),
    }


def _person_facts(prefix: str, person: Person) -> dict[str, str]:
    return {
        prefix: person.name,
        f"{prefix}.login": person.login,
        f"{prefix}.email": person.email,
        f"{prefix}.last_name": person.name.split()[-1],
    }


def _service_facts(estate: Estate, service: CompanyService) -> dict[str, str]:
    name = service.name
    return {
        f"{name}.name": name,
        f"{name}.version": service.version,
        f"{name}.previous_version": service.previous_version,
        f"{name}.replicas": str(service.replicas),
        f"{name}.language": service.language,
        f"{name}.team": service.team.name,
        f"{name}.project": service.team.project,
        f"{name}.on_call": service.team.on_call.name,
        f"{name}.repository": f"{estate.company.organization}/{name}",
    }


def _failure_facts(estate: Estate) -> dict[str, str]:
    release = estate.company.failing_release
    tickets = find_key_tickets(estate.company)
    repository = estate.github.repositories[f"{estate.company.organization}/{release.service.name}"]
    number = next(number for number, issue in repository.issues.items() if issue.pull is not None)
    return {
        "failing.service": release.service.name,
        "failing.version": release.service.version,
        "failing.previous_version": release.service.previous_version,
        "failing.old_setting": release.old_setting,
        "failing.new_setting": release.new_setting,
        "failing.value": release.setting_value,
        "failing.pull_title": release.pull_request_title,
        "failing.pull_number": str(number),
        "failing.log_line": release.log_line,
        "failing.incident": str(release.incident_number),
        "failing.manifest": MANIFEST_PATH,
        "failing.release_ticket": tickets.release,
        "failing.rename_ticket": tickets.rename,
        "failing.earlier_ticket": tickets.earlier_failure,
        **_person_facts("failing.author", release.author),
    }
