"""`caipe doctor`: settings and their sources, and checks with remedies."""

import sys

import click

from ai_platform_engineering.cli.options import exit_code
from ai_platform_engineering.core.settings import (
    InvalidSettings,
    Settings,
    read_dotenv,
    read_environment,
)
from ai_platform_engineering.core.settings_report import describe_settings


@click.command()
def doctor() -> None:
    """Settings and where each came from, databases, model, agents, proxies,
    certificates, and how to mend what is wrong."""
    from rich.console import Console

    from ai_platform_engineering.cli.doctor_checks import run_checks
    from ai_platform_engineering.terminal.doctor_view import (
        DoctorFinding,
        print_findings,
        print_settings,
    )

    console = Console(soft_wrap=True)
    variables = read_environment()
    try:
        settings = Settings.from_variables(variables)
    except InvalidSettings as error:
        remedy = "Correct it in the environment or in .env: nothing starts before."
        print_findings(console, [DoctorFinding("wrong", problem, remedy) for problem in error.problems])
        sys.exit(exit_code(failed=True))
    print_settings(console, describe_settings(settings, variables, read_dotenv()))
    findings = run_checks(settings, variables)
    print_findings(console, findings)
    sys.exit(exit_code(failed=any(finding.state == "wrong" for finding in findings)))
