"""The demo estate with a clock that stands still, its stand-ins and the real tool servers pointed to them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ai_platform_engineering.demo.estate.company import CompanyService, FailingRelease
from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.stand_in import FaultMiddleware, FaultSwitch, StandIn
from tests.demo.test_estate import Clock
from tests.support.estate_agents import EstateServers, run_estate_servers

_SEED = 23
_ROLLOUT_SECONDS = 60  # more than a rollout takes


@dataclass(frozen=True, slots=True)
class EstateStage:
    estate: Estate
    clock: Clock
    servers: EstateServers

    @property
    def release(self) -> FailingRelease:
        return self.estate.company.failing_release

    @property
    def cart(self) -> CompanyService:
        """A healthy service."""
        service = self.estate.company.find_service("cart")
        assert service is not None
        return service

    def finish_rollout(self) -> None:
        self.clock.advance(_ROLLOUT_SECONDS)

    def break_checkout(self) -> None:
        """Deploys the failing release, whatever an earlier test has left."""
        service = self.release.service
        if self.estate.deployment(service).current.revision.version != service.version:
            self.estate.deploy(service, service.version, "admin")
        self.finish_rollout()


@contextlib.asynccontextmanager
async def run_estate_stage(folder: Path, *stand_ins: StandIn) -> AsyncIterator[EstateStage]:
    clock = Clock()
    estate = build_estate(_SEED, clock)
    apps = {
        stand_in: FaultMiddleware(stand_in.create_app(estate), estate, FaultSwitch())
        for stand_in in stand_ins
    }
    async with run_estate_servers(folder, apps) as servers:
        yield EstateStage(estate, clock, servers)
