"""Hosts that are allowed in private networks, for each use of the network separately."""

import ipaddress
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.setting_types import InvalidSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.net.address_policy import IPAddress
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.url_policy import FetchRefused, PrivateAccess
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from tests.support.fakes.site import FakeNetwork, Page, serve_site

NAMES = {
    "wiki.corp.test": ("10.1.2.3",),
    "deep.wiki.corp.test": ("10.9.9.9", "fd12::1"),
    "open.test": ("93.184.215.14",),
    "mixed.test": ("93.184.215.14", "10.1.2.3"),
    "outside.test": ("192.168.7.7",),
    "mapped.test": ("::ffff:10.1.2.3",),
    "meta.corp.test": ("169.254.169.254",),
    "link.corp.test": ("169.254.7.7",),
    "reserved.corp.test": ("240.0.0.1",),
}
SETTINGS = (
    "RAG_FETCH_URL_PRIVATE_HOSTS",
    "RAG_WEB_PRIVATE_HOSTS",
    "RAG_GIT_PRIVATE_HOSTS",
    "SKILL_HUBS_PRIVATE_HOSTS",
)


def checker(*patterns: str) -> UrlChecker:
    private = PrivateAccess(hosts=AllowedHosts.parse(patterns), setting="THE_SETTING")
    return UrlChecker(private=private, connector=FakeNetwork(NAMES))


async def allowed(*patterns: str) -> set[str]:
    """Which of the names may be fetched."""
    names: set[str] = set()
    for name in NAMES:
        try:
            await checker(*patterns).check(f"https://{name}/")
        except FetchRefused:
            continue
        names.add(name)
    return names


async def test_names_suffixes_and_networks_are_listed() -> None:
    assert await allowed() == {"open.test"}
    assert await allowed("wiki.corp.test") == {"open.test", "wiki.corp.test"}
    assert await allowed("*.corp.test") == {"open.test", "wiki.corp.test", "deep.wiki.corp.test"}
    assert await allowed("10.1.0.0/16") == {"open.test", "wiki.corp.test", "mixed.test", "mapped.test"}
    assert await allowed("10.0.0.0/8") == await allowed("10.1.0.0/16")  # fd12::1 is in none
    assert await allowed("10.0.0.0/8", "fc00::/7") == await allowed("10.1.0.0/16") | {"deep.wiki.corp.test"}
    # What hands out credentials, or is nobody's, stays refused.
    everything = await allowed("*.corp.test", "0.0.0.0/0", "::/0")
    assert everything.isdisjoint({"meta.corp.test", "link.corp.test", "reserved.corp.test"})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_listed_by_name_or_network(host: str) -> None:
    network = FakeNetwork({"localhost": ("127.0.0.1",)})
    loopback = PrivateAccess(hosts=AllowedHosts.parse(["127.0.0.0/8"]))
    await UrlChecker(private=loopback, connector=network).check(f"http://{host}/")
    other = PrivateAccess(hosts=AllowedHosts.parse(["10.0.0.0/8"]))
    with pytest.raises(FetchRefused):
        await UrlChecker(private=other, connector=network).check(f"http://{host}/")


async def test_the_error_names_the_setting_where_it_helps() -> None:
    with pytest.raises(FetchRefused, match="list this host, or its network, in THE_SETTING"):
        await checker("wiki.corp.test").check("https://outside.test/")
    with pytest.raises(FetchRefused) as refusal:
        await checker("*.corp.test").check("https://meta.corp.test/")
    assert "THE_SETTING" not in str(refusal.value)


async def test_a_listed_name_is_looked_up_once_and_its_redirects_are_checked() -> None:
    class Rebinding(FakeNetwork):
        async def addresses(self, name: str) -> tuple[IPAddress, ...]:
            self.lookups.append(name)
            return (ipaddress.ip_address("127.0.0.1" if name == "wiki.corp.test" else "127.0.0.2"),)

    pages = {
        "/": Page("<p>Hello.</p>"),
        "/away": Page(status=302, headers={"Location": "http://outside.test/"}),
    }
    async with serve_site(pages) as served:
        world = Rebinding(ports={"127.0.0.1": served.port})
        private = PrivateAccess(hosts=AllowedHosts.parse(["wiki.corp.test"]))
        fetcher = Fetcher(private=private, connector=world)
        assert (await fetcher.fetch("http://wiki.corp.test/")).status == 200
        assert (world.lookups, world.attempts) == (["wiki.corp.test"], ["127.0.0.1"])
        with pytest.raises(FetchRefused):
            await fetcher.fetch("http://wiki.corp.test/away")
        assert world.attempts == ["127.0.0.1"] * 2


@pytest.mark.parametrize("setting", SETTINGS)
async def test_each_use_has_a_list_of_its_own(tmp_path: Path, setting: str) -> None:
    """A host that is listed for one use is refused for the others, each with its own setting."""
    async with serve_site({"/": Page("<title>Start</title><p>Welcome</p>")}) as served:
        values = {"CAIPE_HOME": str(tmp_path), "RAG_EMBEDDINGS": "off", setting: "127.0.0.1"}
        settings = Settings.from_variables(values)
        refusals = await collect_refusals(settings, served.url)
    others = [other for other in SETTINGS if other != setting]
    assert setting not in refusals
    assert all(other in refusals for other in others)


async def collect_refusals(settings: Settings, url: str) -> str:
    """Why each use refuses a host on loopback, if it does."""
    refusals: list[str] = []
    kb = create_knowledge_base(settings, {})
    await kb.open(start_workers=False)
    try:
        try:
            await kb.fetch_url(f"{url}/")
        except CaipeError as error:
            refusals.append(str(error))
        for location in (f"{url}/", f"git+{url}/team/tools.git"):
            _, job = await kb.add_datasource(location)
            async for progress in kb.follow_job(job.job_id):
                job = progress
            refusals.append(job.problem + str(job.failed))
    finally:
        await kb.aclose()
    catalog = build_skill_catalog(settings, {})
    await catalog.open()
    try:
        await catalog.add_hub(f"{url}/team/skills")
    except CaipeError as error:
        refusals.append(str(error))
    finally:
        await catalog.close()
    return "\n".join(refusals)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_pattern_that_is_none_is_an_error(setting: str) -> None:
    with pytest.raises(InvalidSettings, match=setting):
        Settings.from_variables({setting: "wiki.corp.test,http://x/"})
