"""Accessibility of a page by axe-core: what a screen reader or a keyboard would stumble over."""

from typing import Any

from playwright.async_api import Page

from tests.conftest import ROOT, need

_AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
_SERIOUS = ("serious", "critical")


async def find_violations(page: Page) -> list[str]:
    """The serious violations of the page as it is now, each with its element."""
    need("axe-core", _AXE.is_file(), "`npm ci` in ui/ installs it")
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(_AXE.read_text(encoding="utf-8"))
    report: dict[str, Any] = await page.evaluate("() => axe.run({resultTypes: ['violations']})")
    violations: list[str] = []
    for violation in report["violations"]:
        if violation["impact"] in _SERIOUS:
            elements = [node["html"][:200] for node in violation["nodes"][:3]]
            violations.append(f"{violation['id']}: {' | '.join(elements)}")
    return violations
