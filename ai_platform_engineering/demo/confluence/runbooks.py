"""The company's runbooks: one for each service, and an outdated one for checkout."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ai_platform_engineering.demo.confluence.storage_format import (
    Block,
    CodeBlock,
    Heading,
    ListBlock,
    Paragraph,
    write_markdown,
)
from ai_platform_engineering.demo.estate.company import Company, CompanyService

OUTDATED_RUNBOOK_DAYS = 412


@dataclass(frozen=True, slots=True)
class RunbookDocument:
    """A runbook as a document of the knowledge base, in Markdown."""

    title: str
    text: str


def list_runbook_documents(company: Company) -> list[RunbookDocument]:
    """Every runbook that Confluence has, the outdated one with the day of its last change."""
    documents = [
        RunbookDocument(
            runbook_title(service),
            f"# {runbook_title(service)}\n\n{write_markdown(write_runbook(company, service))}",
        )
        for service in company.services
    ]
    title = outdated_runbook_title(company)
    changed = company.now - timedelta(days=OUTDATED_RUNBOOK_DAYS)
    text = (
        f"# {title}\n\nLast changed: {changed:%Y-%m-%d}\n\n{write_markdown(write_outdated_runbook(company))}"
    )
    documents.append(RunbookDocument(title, text))
    return documents


def runbook_title(service: CompanyService) -> str:
    return f"Runbook: {service.name}"


def outdated_runbook_title(company: Company) -> str:
    return f"Emergency guide for {company.failing_release.service.name}"


def write_runbook(company: Company, service: CompanyService) -> Sequence[Block]:
    return [
        Paragraph(
            f"What to do when {service.name} fails. {service.description}."
            f" Owned by the team {service.team.name}."
        ),
        *_write_overview(company, service),
        *_write_first_checks(company, service),
        *_write_release_failure(service),
        *_write_roll_back(service),
        *_write_whom_to_tell(service),
    ]


def write_outdated_runbook(company: Company) -> Sequence[Block]:
    """Was right when checkout had a database of its own, and leads away from the cause today."""
    service = company.failing_release.service
    return [
        Paragraph(f"What to do when {service.name} is down."),
        Heading("Restart"),
        Paragraph(
            f"{service.name} fails when it has run out of memory or of database connections. Restart all pods"
            " and raise the memory limit to 2 GiB."
        ),
        Heading("Scale"),
        Paragraph("If it fails again, scale the deployment to 8 replicas."),
        Heading("Do not roll back"),
        Paragraph(
            "Each release migrates the orders database. An older version does not start with the new schema."
        ),
        Heading("Whom to tell"),
        Paragraph("The team Web, in its room on the second floor."),
    ]


def _write_overview(company: Company, service: CompanyService) -> Sequence[Block]:
    dependencies = ", ".join(service.depends_on) or "none"
    return [
        Heading("Overview"),
        ListBlock(
            (
                f"Repository: {company.organization}/{service.name} ({service.language})",
                f"Argo CD application: {service.name}, of the project {service.team.name.lower()}",
                f"Kubernetes: deployment {service.name} in the namespace {company.namespace},"
                f" {service.replicas} replicas",
                f"Services that it calls: {dependencies}",
                f"Jira project: {service.team.project}, component {service.name}",
            )
        ),
    ]


def _write_first_checks(company: Company, service: CompanyService) -> Sequence[Block]:
    return [
        Heading("First checks"),
        ListBlock(
            (
                f"Health and history of the application {service.name} in Argo CD: was there a release?",
                f"Pods and events in the namespace {company.namespace}.",
                "Last lines in the log of a pod that crashes.",
                f"Open incidents of {service.name} in PagerDuty.",
            ),
            is_numbered=True,
        ),
    ]


def _write_release_failure(service: CompanyService) -> Sequence[Block]:
    return [
        Heading("Pods crash after a release"),
        Paragraph("The container ends with a line such as this one:"),
        CodeBlock("FATAL configuration: required setting NAME is not set"),
        Paragraph(
            "The code reads a setting that deploy/deployment.yaml does not set. Compare it with"
            " config/required-settings.txt at the deployed commit. A restart does not help."
            " Roll back first, then add the setting to the manifest and release again."
        ),
    ]


def _write_roll_back(service: CompanyService) -> Sequence[Block]:
    return [
        Heading("Roll back"),
        ListBlock(
            (
                f"Find the previous deployment in the history of the application {service.name} in Argo CD.",
                f"Sync {service.name} to the revision of that deployment, or use Rollback in Argo CD."
                " No data is migrated, so older versions start.",
                "Wait until the application is Healthy; that takes less than a minute.",
                "Acknowledge the incident in PagerDuty, and resolve it when orders work again.",
            ),
            is_numbered=True,
        ),
    ]


def _write_whom_to_tell(service: CompanyService) -> Sequence[Block]:
    team = service.team
    return [
        Heading("Whom to tell"),
        ListBlock(
            (
                f"{team.on_call.name} ({team.on_call.email}), on call for the team {team.name}",
                f"The channel #{team.name.lower()}-oncall, before the rollback and after it",
                f"Create a bug in the Jira project {team.project} with the label incident and the component"
                f" {service.name}",
            )
        ),
    ]
