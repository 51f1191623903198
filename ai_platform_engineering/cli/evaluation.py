"""`caipe eval`: questions with expected facts for the demo estate, and how well they are answered."""

from pathlib import Path

import click

from ai_platform_engineering.cli.options import exit_code, run_interruptible

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("eval")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--case", "names", multiple=True, help="Only this case, named as its file. Repeatable.")
@click.option("--repeat", type=click.IntRange(1, 100), default=3, help="Attempts at each case (3).")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=1,
    help="Which company the first attempt is about; each further one has the next (1).",
)
@click.option("--concurrency", type=click.IntRange(1, 16), default=1, help="Attempts at the same time (1).")
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=300.0, help="Seconds of one attempt (300)."
)
@click.option("--compare", type=_FILE, help="An earlier result to compare with.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the result as JSON.",
)
@click.option("--prices", type=_FILE, help="Prices of models, for the cost; without it none is shown.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    help="Exit with 1 when fewer per cent pass.",
)
@click.option("--url", help="Ask this running server, such as that of `caipe demo`, instead of own ones.")
@click.option("--token", envvar="A2A_AUTH_SHARED_KEY", help="The shared key, if the server has one.")
def eval_(
    folder: Path | None,
    names: tuple[str, ...],
    repeat: int,
    seed: int,
    concurrency: int,
    timeout: float,
    compare: Path | None,
    output: Path | None,
    prices: Path | None,
    fail_under: float | None,
    url: str | None,
    token: str | None,
) -> None:
    """Measure how well questions about the demo estate are answered.

    Asks the cases in FOLDER, by default the shipped ones, of the configured model. Prints pass rate, calls,
    tokens, cost and time of each.

    Each attempt has an estate and a supervisor of its own. No system of yours is used."""
    from ai_platform_engineering.cli.evaluation_report import print_compared, print_result
    from ai_platform_engineering.cli.evaluation_runner import (
        EvaluationPlan,
        EvaluationRunner,
        build_settings,
        open_servers,
    )
    from ai_platform_engineering.demo.evaluation.case_files import SHIPPED_CASES, read_case_files
    from ai_platform_engineering.demo.evaluation.comparison import compare_results
    from ai_platform_engineering.demo.evaluation.prices import read_prices
    from ai_platform_engineering.demo.evaluation.results import load_result
    from ai_platform_engineering.terminal.evaluation_view import print_attempt

    files = read_case_files(folder or SHIPPED_CASES, names)
    # What can be wrong with the arguments is found before anything is paid for.
    earlier = load_result(compare) if compare is not None else None
    price_table = read_prices(prices) if prices is not None else None

    EvaluationPlan.create(files, [seed])

    async def run() -> int:
        servers, seeds = await open_servers(url, token, seed, repeat)
        plan = EvaluationPlan.create(files, seeds)
        settings = build_settings(
            servers, seeds, concurrency=concurrency, timeout=timeout, prices=price_table
        )
        runner = EvaluationRunner(
            servers,
            settings,
            price_table,
            lambda name, number, result: print_attempt(
                name,
                number,
                len(seeds),
                [failure.text for failure in result.failures],
                result.seconds,
            ),
        )
        try:
            await runner.run(plan)
        finally:  # also after Ctrl-C: what was answered is paid for
            result = runner.collect(plan)
            if output is not None:
                result.save(output)
            print_result(result)
        if earlier is not None:
            print_compared(compare_results(earlier, result))
        return exit_code(failed=not result.attempts or _is_below(result.rate, fail_under))

    run_interruptible(run)


def _is_below(rate: float, fail_under: float | None) -> bool:
    return fail_under is not None and 100 * rate < fail_under
