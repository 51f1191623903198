"""GitHub over the estate: the company's repositories, in which a merged change can be deployed."""

import base64
from pathlib import Path

import httpx

from ai_platform_engineering.demo.estate.estate import Health, build_estate
from ai_platform_engineering.demo.estate.repositories import MANIFEST_PATH
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn
from ai_platform_engineering.demo.github.app import STAND_IN
from tests.demo.test_estate import Clock


async def test_the_cause_is_in_the_last_pull_request_and_a_fix_of_the_manifest_heals(tmp_path: Path) -> None:
    clock = Clock()
    estate = build_estate(6, clock)
    release = estate.company.failing_release
    variables = STAND_IN.variables(RunningStandIn("http://github", tmp_path))
    http = httpx.AsyncClient(
        transport=httpx.ASGITransport(STAND_IN.create_app(estate)),
        base_url=f"{variables['GITHUB_API_URL']}/repos/{estate.company.organization}/checkout",
        headers={"Authorization": f"Bearer {variables['GITHUB_TOKEN']}"},
    )
    async with http:
        pulls = (await http.get("/pulls", params={"state": "closed"})).json()
        commits = (await http.get("/commits", params={"per_page": 1})).json()
        file = (await http.get(f"/contents/{MANIFEST_PATH}")).json()
        manifest = base64.b64decode(file["content"]).decode()
        fixed = manifest.replace(release.old_setting, release.new_setting)
        body = {
            "message": f"Set {release.new_setting}",
            "content": base64.b64encode(fixed.encode()).decode(),
            "sha": file["sha"],
        }
        written = await http.put(f"/contents/{MANIFEST_PATH}", json=body)
        issue = await http.post("/issues", json={"title": "checkout fails"})
    estate.deploy(release.service, "HEAD", "admin")
    clock.advance(60)
    issues = estate.github.repositories[f"{estate.company.organization}/checkout"].issues
    assert [pull["title"] for pull in pulls] == [release.pull_request_title]
    assert pulls[0]["user"]["login"] == release.author.login
    assert commits[0]["commit"]["message"].startswith(release.pull_request_title)
    assert release.new_setting not in manifest
    assert (written.status_code, issue.status_code) == (200, 201)
    assert "checkout fails" in {item.title for item in issues.values()}
    assert estate.health(release.service) == Health.HEALTHY
