"""Client of the demo's control API: faults, status and reset of the demo that runs with this CAIPE_HOME."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.demo.estate.control_api import ControlAddress, DemoStatus
from ai_platform_engineering.demo.estate.stand_in import Faults

ALL_SYSTEMS = "all"
_TIMEOUT_SECONDS = 10.0


class DemoNotRunning(CaipeError):
    """No demo runs with this CAIPE_HOME."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"No demo is running with {home}. Start one in another terminal: {command_name()} demo"
        )


class DemoControl:
    """The control API of a running demo. Methods raise DemoNotRunning, and CaipeError when it refuses."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def is_running(self) -> bool:
        try:
            self.read_status()
        except CaipeError:
            return False
        return True

    def read_status(self) -> DemoStatus:
        return DemoStatus.model_validate(self._request("GET", "/status"))

    def reset(self) -> DemoStatus:
        return DemoStatus.model_validate(self._request("POST", "/reset"))

    def list_faults(self) -> dict[str, Faults]:
        faults = self._request("GET", "/faults")
        return {name: Faults.model_validate(values) for name, values in faults.items()}

    def set_faults(self, name: str, faults: Faults) -> Faults:
        """`name` is one of `list_faults`."""
        return Faults.model_validate(self._request("PUT", f"/faults/{name}", faults.model_dump()))

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        address = ControlAddress.load(self._home)
        if address is None:
            raise DemoNotRunning(self._home)
        headers = {"Authorization": f"Bearer {address.token}"}
        try:
            # No proxy: it is on this machine.
            with httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False) as http:
                response = http.request(method, f"{address.url}{path}", json=body, headers=headers)
        except httpx.HTTPError:
            raise DemoNotRunning(self._home) from None
        if response.status_code == 401:  # another program listens there by now
            raise DemoNotRunning(self._home)
        if response.is_error:
            raise CaipeError(_read_message(response))
        return response.json()


def change_faults(control: DemoControl, name: str, changes: Mapping[str, float]) -> dict[str, Faults]:
    """Changes the faults of a system, or of "all"; no changes switch them off. Raises CaipeError."""
    all_faults = control.list_faults()
    names = list(all_faults) if name == ALL_SYSTEMS else [name]
    if not all_faults.keys() >= set(names):
        systems = ", ".join(all_faults)
        raise CaipeError(f"The demo has no system {name}; there are {systems}, or {ALL_SYSTEMS}.")
    changed_faults: dict[str, Faults] = {}
    for system in names:
        values = {**all_faults[system].model_dump(), **changes} if changes else {}
        try:
            changed_faults[system] = Faults.model_validate(values)
        except ValidationError as error:
            raise CaipeError(_describe_wrong_fault(error)) from None
    return {system: control.set_faults(system, faults) for system, faults in changed_faults.items()}


def _describe_wrong_fault(error: ValidationError) -> str:
    detail = error.errors(include_input=False)[0]
    option = str(detail["loc"][0]).replace("_", "-")
    return f"--{option}: {detail['msg']}."


def describe_faults(name: str, faults: Faults) -> str:
    """A line about a system: "argocd  20% errors, 2s latency"."""
    parts: list[str] = []
    if faults.errors:
        parts.append(f"{faults.errors:.0%} errors")
    if faults.latency:
        parts.append(f"{faults.latency:g}s latency")
    if faults.rate_limit:
        parts.append(f"at most {faults.rate_limit} requests in a minute")
    return f"{name:12} {', '.join(parts) or 'no faults'}"


def _read_message(response: httpx.Response) -> str:
    try:
        message = str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = f"it answered with status {response.status_code}"
    return f"The demo refuses: {message}."
