"""The estate that all stand-ins share: one story, deployments that change by the clock, faults."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.control_api import CONTROL_FILE, ControlAddress, create_control_app
from ai_platform_engineering.demo.estate.estate import Health, UnknownRevision, build_estate
from ai_platform_engineering.demo.estate.estate_apps import EstateApps
from ai_platform_engineering.demo.estate.stand_in import Faults, FaultSwitch, StandIn


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_only_the_failing_release_is_degraded_and_a_rollback_heals_it_after_a_while(seed: int) -> None:
    clock = Clock()
    estate = build_estate(seed, clock)
    failing = estate.company.failing_release.service
    announced: list[tuple[str, Health]] = []
    estate.observe_health(lambda service, health: announced.append((service.name, health)))
    degraded = [service for service in estate.company.services if estate.health(service) != Health.HEALTHY]

    entry = estate.roll_back(failing, "admin")
    health_at_once = estate.health(failing)
    clock.advance(60)
    estate.announce_health()

    assert degraded == [failing]
    assert entry.revision.version == failing.previous_version
    assert health_at_once == Health.PROGRESSING
    assert estate.health(failing) == Health.HEALTHY
    assert announced == [("checkout", Health.PROGRESSING), ("checkout", Health.HEALTHY)]


def test_the_missing_setting_can_also_be_set_in_the_cluster() -> None:
    estate = build_estate(5, Clock())
    release = estate.company.failing_release
    revision = estate.deployment(release.service).current.revision
    before = estate.missing_settings(release.service, revision)

    estate.change_deployment(release.service, settings={release.new_setting: "1"})

    assert before == [release.new_setting]
    assert estate.health(release.service) == Health.HEALTHY


def test_an_unknown_revision_is_refused() -> None:
    estate = build_estate(5, Clock())
    service: CompanyService = estate.company.services[0]
    with pytest.raises(UnknownRevision):
        estate.deploy(service, "0123456", "admin")
    with pytest.raises(UnknownRevision):
        estate.roll_back(service, "admin", deployment_id=99)


async def test_faults_are_switched_on_and_off_while_a_stand_in_runs(tmp_path: Path) -> None:
    apps = EstateApps([StandIn("argocd", lambda _: _hello_app(), lambda _: {})], seed=1)
    control = create_control_app(apps, {"argocd": "http://x"}, "token")
    app = apps.get_app("argocd")
    stand_in = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")
    api = httpx.AsyncClient(transport=httpx.ASGITransport(control), base_url="http://x")
    authorized = {"Authorization": "Bearer token"}
    async with stand_in, api:
        statuses = [(await stand_in.get("/")).status_code]
        refused = await api.put("/faults/argocd", json={"errors": 1.0})
        unknown = await api.put("/faults/nothing", json={}, headers=authorized)
        invalid = await api.put("/faults/argocd", json={"errors": 2}, headers=authorized)
        await api.put("/faults/argocd", json={"errors": 1.0}, headers=authorized)
        statuses.append((await stand_in.get("/")).status_code)
        await api.put("/faults/argocd", json={"rate_limit": 1}, headers=authorized)
        statuses.append((await stand_in.get("/")).status_code)
        limited = await stand_in.get("/")
        listed = (await api.get("/faults", headers=authorized)).json()
        await api.put("/faults/argocd", json={}, headers=authorized)
        statuses.append((await stand_in.get("/")).status_code)

    assert statuses == [200, 503, 200, 200]
    assert (refused.status_code, unknown.status_code, invalid.status_code) == (401, 404, 422)
    assert limited.status_code == 429
    assert 1 <= int(limited.headers["Retry-After"]) <= 61
    assert listed == {"argocd": {"errors": 0.0, "latency": 0.0, "rate_limit": 1}}


def test_the_share_of_errors_is_about_what_was_asked_for() -> None:
    switch = FaultSwitch(seed=3, faults=Faults(errors=0.2))
    errors = sum(switch.draw_error() for _ in range(2000))
    assert 300 < errors < 500


def test_the_file_of_the_control_api_is_for_its_owner_alone(tmp_path: Path) -> None:
    address = ControlAddress(url="http://127.0.0.1:1", token="secret")
    address.save(tmp_path)
    assert stat.S_IMODE((tmp_path / CONTROL_FILE).stat().st_mode) == 0o600
    assert ControlAddress.load(tmp_path) == address
    ControlAddress(url="http://127.0.0.1:1", token="of another demo").remove(tmp_path)
    assert ControlAddress.load(tmp_path) == address
    address.remove(tmp_path)
    assert ControlAddress.load(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b"\xff" * 40, b"x" * 20_000])
def test_a_control_file_that_makes_no_sense_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONTROL_FILE).write_bytes(content)
    assert ControlAddress.load(tmp_path) is None


def _hello_app() -> Starlette:
    async def hello(_: Request) -> Response:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/", hello)])
