"""The proxy that the environment names for a host."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ai_platform_engineering.core.host_patterns import is_loopback

HTTP_SCHEMES = frozenset({"http", "https"})


def find_proxy_url(scheme: str, host: str, port: int) -> str | None:
    """The proxy of the environment for this host; none for loopback hosts and those that it exempts."""
    if is_loopback(host) or proxy_bypass(f"{host}:{port}"):
        return None
    proxies = getproxies()
    return _add_scheme(proxies.get(scheme) or proxies.get("all"))


def has_only_http_proxies() -> bool:
    """Whether no proxy of the environment speaks another protocol, such as SOCKS."""
    proxies = getproxies()
    urls = (_add_scheme(proxies.get(name)) for name in ("http", "https", "all"))
    return all(urlsplit(url).scheme in HTTP_SCHEMES for url in urls if url)


def _add_scheme(proxy_url: str | None) -> str | None:
    if proxy_url and "://" not in proxy_url:
        return f"http://{proxy_url}"
    return proxy_url or None
