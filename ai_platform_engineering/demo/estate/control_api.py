"""The control API of the demo: shows the stand-ins, changes their faults and resets them while they run."""

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.private_files import write_private_file
from ai_platform_engineering.demo.estate.estate_apps import EstateApps
from ai_platform_engineering.demo.estate.estate_state import EstateState
from ai_platform_engineering.demo.estate.stand_in import Faults

CONTROL_FILE = "demo-control.json"  # in the demo's folder, readable by its owner alone
_MAX_BODY_BYTES = 10_000
_MAX_FILE_BYTES = 10_000


class ControlAddress(BaseModel):
    """Where the control API listens and the token that it accepts, as they are stored in the file."""

    url: str
    token: str

    def save(self, folder: Path) -> None:
        write_private_file(folder / CONTROL_FILE, self.model_dump_json().encode())

    @classmethod
    def load(cls, folder: Path) -> "ControlAddress | None":
        """None when no demo runs with this folder, or its file cannot be read."""
        path = folder / CONTROL_FILE
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return None
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None

    def remove(self, folder: Path) -> None:
        """Removes the file, unless it is another demo's by now."""
        if self.load(folder) == self:
            (folder / CONTROL_FILE).unlink(missing_ok=True)


class StandInStatus(BaseModel):
    """A stand-in as `caipe demo status` shows it."""

    name: str
    url: str
    faults: Faults


class DemoStatus(BaseModel):
    """The running demo: its company, the health of its services, and its stand-ins."""

    company: str
    seed: int
    services: dict[str, str]
    stand_ins: list[StandInStatus]


def create_token() -> str:
    return secrets.token_urlsafe(24)


def create_control_app(apps: EstateApps, urls: Mapping[str, str], token: str) -> Starlette:
    """`urls`: where each stand-in listens."""
    api = _ControlApi(apps, urls, token)
    return Starlette(
        routes=[
            Route("/status", api.show_status, methods=["GET"]),
            Route("/state", api.show_state, methods=["GET"]),
            Route("/reset", api.reset, methods=["POST"]),
            Route("/faults", api.list_faults, methods=["GET"]),
            Route("/faults/{name}", api.set_faults, methods=["PUT"]),
        ]
    )


class _ControlApi:
    def __init__(self, apps: EstateApps, urls: Mapping[str, str], token: str) -> None:
        self._apps = apps
        self._urls = urls
        self._token = token

    async def show_status(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        return JSONResponse(self._describe().model_dump())

    async def show_state(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        return JSONResponse(EstateState.of(self._apps.estate).model_dump(mode="json"))

    async def reset(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        self._apps.reset()
        return JSONResponse(self._describe().model_dump())

    async def list_faults(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        switches = self._apps.switches
        return JSONResponse({name: switch.faults.model_dump() for name, switch in switches.items()})

    async def set_faults(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        switch = self._apps.switches.get(request.path_params["name"])
        if switch is None:
            return _error(404, f"no such stand-in; there are: {', '.join(sorted(self._apps.switches))}")
        body = await request.body()
        if len(body) > _MAX_BODY_BYTES:
            return _error(413, "the body is too long")
        try:
            switch.faults = Faults.model_validate_json(body)
        except ValidationError as error:
            return _error(422, error.errors()[0]["msg"])
        return JSONResponse(switch.faults.model_dump())

    def _describe(self) -> DemoStatus:
        estate = self._apps.estate
        stand_ins: list[StandInStatus] = []
        for name, switch in self._apps.switches.items():
            stand_ins.append(StandInStatus(name=name, url=self._urls.get(name, ""), faults=switch.faults))
        return DemoStatus(
            company=estate.company.name,
            seed=self._apps.seed,
            services={service.name: estate.health(service).value for service in estate.company.services},
            stand_ins=stand_ins,
        )

    def _is_authorized(self, request: Request) -> bool:
        header = request.headers.get("Authorization", "")
        return hmac.compare_digest(header.encode(), f"Bearer {self._token}".encode())


def _error(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status)
