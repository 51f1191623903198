"""uvicorn as a process with our application factory: what it says when the application cannot start."""

import httpx
import pytest

from tests.support.database_servers import PASSWORD
from tests.support.harness import PLAIN
from tests.support.ports import closed_port
from tests.support.processes import run_command, start_command

FACTORY = "ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main:app"
UVICORN = ("uvicorn", "--factory", FACTORY, "--port", "0")
START_FAILED = 3  # the exit code of uvicorn
REFUSED = "STORAGE_REQUIRED forbids to go on without it."


def required_postgres(port: int) -> dict[str, str]:
    return {
        "DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/x",
        "STORAGE_REQUIRED": "true",
    }


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            required_postgres(closed_port()),
            f"cannot be used: nothing listens at its address. {REFUSED} Check DATABASE_URL.",
        ),
        (
            {"DATABASE_URL": f"postgresql://u:{PASSWORD}@[db/x"},
            "DATABASE_URL is not an address of a PostgreSQL database.",
        ),
        ({"RUNS_MAX_WORKING": "many"}, "RUNS_MAX_WORKING"),
    ],
    ids=["away", "no address", "setting"],
)
async def test_a_start_that_fails_is_told_in_a_sentence(variables: dict[str, str], sentence: str) -> None:
    done = await run_command(*UVICORN, env=variables)
    assert done.code == START_FAILED
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert PASSWORD not in done.err + done.out


async def test_without_its_lifespan_the_application_refuses_requests() -> None:
    env = required_postgres(closed_port())
    async with (
        start_command(*UVICORN, "--lifespan", "off", env=env) as program,
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        match = await program.wait_for_stderr(r"running on (http://\S+)")
        response = await http.get(f"{match[1]}/health")
        await program.wait_for_stderr(REFUSED)
    assert response.status_code == 503
    assert "127.0.0.1" not in response.text
    assert "Traceback" not in program.err


async def test_a_database_that_is_not_required_does_not_stop_the_start() -> None:
    env = {**required_postgres(closed_port()), "STORAGE_REQUIRED": "false"}
    async with (
        start_command(*UVICORN, env=env) as program,
        httpx.AsyncClient(verify=PLAIN, timeout=120) as http,
    ):
        match = await program.wait_for_stderr(r"running on (http://\S+)")
        report = (await http.get(f"{match[1]}/ready")).json()
    assert report["components"]["storage"]["backend"] == "memory"
    assert "Traceback" not in program.err
