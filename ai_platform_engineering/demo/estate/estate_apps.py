"""The REST APIs of all stand-ins over one estate, which can be reset to the state of its seed."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.stand_in import FaultMiddleware, Faults, FaultSwitch, StandIn


class EstateApps:
    """The applications by name; a reset replaces the estate under all of them and switches faults off."""

    def __init__(self, stand_ins: Sequence[StandIn], seed: int) -> None:
        self.seed = seed
        self.switches = {stand_in.name: FaultSwitch(seed=seed) for stand_in in stand_ins}
        self._stand_ins = stand_ins
        self.estate = build_estate(seed)
        self._apps = self._create_apps(self.estate)

    def reset(self) -> None:
        self.estate = build_estate(self.seed)
        self._apps = self._create_apps(self.estate)
        for switch in self.switches.values():
            switch.faults = Faults()

    def get_app(self, name: str) -> ASGIApp:
        """The application of a stand-in, which stays the same after a reset."""

        async def call_app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._apps[name](scope, receive, send)

        return call_app

    def _create_apps(self, estate: Estate) -> dict[str, ASGIApp]:
        apps: dict[str, ASGIApp] = {}
        for stand_in in self._stand_ins:
            switch = self.switches[stand_in.name]
            apps[stand_in.name] = FaultMiddleware(stand_in.create_app(estate), estate, switch)
        return apps
