"""`caipe doctor`: problems and their remedies, settings and their sources."""

import sys

import click

from ai_platform_engineering.cli.options import exit_code
from ai_platform_engineering.core.environment import read_dotenv, read_environment
from ai_platform_engineering.core.setting_types import InvalidSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings
from ai_platform_engineering.core.terminals import command_name


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Include what is fine, and every setting.")
@click.option(
    "--live", is_flag=True, help="Ask the model one question and make one read-only call to each agent."
)
def doctor(show_all: bool, live: bool) -> None:
    """Find problems and say how to fix them.

    Then the settings that differ from the default are listed. Databases are tried; with --live the model and
    the agents too.
    """
    from ai_platform_engineering.cli.doctor_checks import run_checks
    from ai_platform_engineering.terminal.doctor_view import DoctorFinding, print_finding, print_report
    from ai_platform_engineering.terminal.screen import create_console

    console = create_console(soft_wrap=True)
    variables = read_environment()
    try:
        settings = Settings.from_variables(variables)
    except InvalidSettings as error:
        remedy = "Correct it in the environment or in .env: nothing starts before."
        for problem in error.problems:
            print_finding(console, DoctorFinding("wrong", problem, remedy))
        sys.exit(exit_code(failed=True))
    findings = run_checks(settings, variables, live=live)
    rows = describe_settings(settings, variables, read_dotenv())
    print_report(console, findings, rows, show_all=show_all, command=f"{command_name()} doctor")
    sys.exit(exit_code(failed=any(finding.state == "wrong" for finding in findings)))
