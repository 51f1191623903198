"""The control API of the demo: shows and changes the faults of each stand-in while it runs."""

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
from ai_platform_engineering.demo.estate.stand_in import Faults, FaultSwitch

CONTROL_FILE = "demo-control.json"  # in the demo's folder, readable by its owner alone
_MAX_BODY_BYTES = 10_000


class ControlAddress(BaseModel):
    """Where the control API listens and the token that it accepts, as they are stored in the file."""

    url: str
    token: str

    def save(self, folder: Path) -> None:
        write_private_file(folder / CONTROL_FILE, self.model_dump_json().encode())

    @classmethod
    def load(cls, folder: Path) -> "ControlAddress | None":
        """None when no demo runs with this folder."""
        try:
            return cls.model_validate_json((folder / CONTROL_FILE).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    @staticmethod
    def remove(folder: Path) -> None:
        (folder / CONTROL_FILE).unlink(missing_ok=True)


def create_token() -> str:
    return secrets.token_urlsafe(24)


def create_control_app(switches: Mapping[str, FaultSwitch], token: str) -> Starlette:
    api = _ControlApi(switches, token)
    return Starlette(
        routes=[
            Route("/faults", api.list_faults, methods=["GET"]),
            Route("/faults/{name}", api.set_faults, methods=["PUT"]),
        ]
    )


class _ControlApi:
    def __init__(self, switches: Mapping[str, FaultSwitch], token: str) -> None:
        self._switches = switches
        self._token = token

    async def list_faults(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        return JSONResponse({name: switch.faults.model_dump() for name, switch in self._switches.items()})

    async def set_faults(self, request: Request) -> Response:
        if not self._is_authorized(request):
            return _error(401, "the token is missing or wrong")
        switch = self._switches.get(request.path_params["name"])
        if switch is None:
            return _error(404, f"no such stand-in; there are: {', '.join(sorted(self._switches))}")
        body = await request.body()
        if len(body) > _MAX_BODY_BYTES:
            return _error(413, "the body is too long")
        try:
            switch.faults = Faults.model_validate_json(body)
        except ValidationError as error:
            return _error(422, error.errors()[0]["msg"])
        return JSONResponse(switch.faults.model_dump())

    def _is_authorized(self, request: Request) -> bool:
        header = request.headers.get("Authorization", "")
        return hmac.compare_digest(header.encode(), f"Bearer {self._token}".encode())


def _error(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status)
