"""Where documents come from: folders, git repositories and web sites, read lazily, and only what changed the
second time."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import CaipeError, SourceUnavailable
from ai_platform_engineering.knowledge_bases.sources.crawler import CrawlLimits
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.folder_source import MAX_FILE_BYTES, FolderSource
from ai_platform_engineering.knowledge_bases.sources.git_source import GitSource
from ai_platform_engineering.knowledge_bases.sources.source_factory import (
    SourceContext,
    SourceKind,
    create_source,
    resolve_local_path,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    DocumentSource,
    RemovedItem,
    SkippedItem,
    UnchangedItem,
)
from ai_platform_engineering.net.git_remotes import GitRemote, parse_remote
from tests.support.fakes.git_server import commit, git, git_server, repository
from tests.support.fakes.site import FakeNetwork, Page, serve_site


@dataclass(slots=True)
class SourceListing:
    """What a source told."""

    changed: dict[str, ChangedItem] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    marks: dict[str, str] = field(default_factory=dict)


async def list_source(source: DocumentSource, known_marks: Mapping[str, str] | None = None) -> SourceListing:
    listing = SourceListing()
    async for item in source.items(known_marks or {}):
        match item:
            case ChangedItem(raw=raw, mark=mark):
                assert raw.address not in listing.changed
                listing.changed[raw.address], listing.marks[raw.address] = item, mark
            case UnchangedItem(address, mark):
                listing.unchanged.add(address)
                listing.marks[address] = mark
            case SkippedItem(address, reason):
                assert address not in listing.skipped
                listing.skipped[address] = reason
            case RemovedItem(address):
                listing.removed.add(address)
    return listing


def create_context(
    tmp_path: Path, *, allow_local: bool = True, connector: FakeNetwork | None = None, private: bool = True
) -> SourceContext:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    return SourceContext(
        Fetcher(allow_private=private, connector=connector), tmp_path / "cache", variables, allow_local
    )


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


# Folders


async def test_a_folder_is_read_with_all_below_it(tmp_path: Path) -> None:
    root, outside = tmp_path / "docs", tmp_path / "outside"
    write(outside, {"secret.md": "secret"})
    write(
        root,
        {
            "index.md": "# Hello",
            "guide/start.rst": "Start",
            "guide/käse 1.txt": "x",
            "paper.pdf": b"%PDF-1.7\0",
            "wide.txt": "ä".encode("utf-16"),
        },
    )
    write(
        root,
        {
            "photo.png": b"\x89PNG\0\0",
            ".env": "TOKEN=1",
            ".github/x.md": "x",
            "node_modules/a/readme.md": "x",
            ".git/config": "x",
        },
    )
    (root / "big.txt").touch()
    os.truncate(root / "big.txt", MAX_FILE_BYTES + 1)
    links = {
        "out.md": outside / "secret.md",
        "up": outside,
        "in.md": Path("index.md"),
        "loop": root,
        "self.md": Path("self.md"),
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    source = create_source(str(root), create_context(tmp_path), kind="folder")
    listing = await list_source(source)
    assert set(listing.changed) == {
        "index.md",
        "guide/start.rst",
        "guide/käse 1.txt",
        "paper.pdf",
        "wide.txt",
        "in.md",
    }
    assert set(listing.skipped) == {
        "photo.png",
        ".env",
        ".github",
        "node_modules",
        "big.txt",
        "out.md",
        "up",
        "loop",
        "self.md",
        "pipe",
    }
    assert all(reason.endswith(".") for reason in listing.skipped.values())
    raw = listing.changed["index.md"].raw
    assert (raw.content, raw.link) == (b"# Hello", None)
    assert raw.changed is not None
    assert raw.changed.timestamp() == pytest.approx((root / "index.md").stat().st_mtime)
    assert (source.kind, source.revision, await source.count()) == (
        "folder",
        None,
        7,
    )  # with one that turns out to be binary


async def test_a_gitignore_that_tries_every_way_ends_and_ignores_more(tmp_path: Path) -> None:
    """Runs into the time limit of the tests when the patterns are matched as they are written."""
    name = "a" * 200
    write(
        tmp_path / "d",
        {
            ".gitignore": f"{'*a' * 12}b\n!{'*a' * 12}*.log\n**/{'a/**/' * 12}c\n*a*a/*a*a*a/x\n",
            f"{name}/{name}/{name}.md": "text",
            f"{name}b": "ignored",
            "keep.md": "text",
        },
    )
    listing = await list_source(FolderSource(tmp_path / "d"))
    assert {f"{name}/{name}/{name}.md", "keep.md"} <= set(listing.changed)
    assert f"{name}b" not in listing.changed


async def test_gitignore_is_honoured(tmp_path: Path) -> None:
    write(
        tmp_path / "d",
        {
            ".gitignore": "*.log\nbuild/\n/top.md\n\\\n!sub/keep.log\n",
            "a.md": "a",
            "a.log": "x",
            "top.md": "x",
            "build/x.md": "x",
        },
    )
    write(
        tmp_path / "d",
        {
            "sub/top.md": "t",
            "sub/keep.log": "k",
            "sub/.gitignore": "!b.log\nonly.md\n",
            "sub/b.log": "b",
            "sub/only.md": "x",
        },
    )
    write(tmp_path / "d", {"sub/deep/only.md": "x", "only.md": "o", "sub/build": "a file, no folder"})
    listing = await list_source(FolderSource(tmp_path / "d"))
    assert set(listing.changed) == {"a.md", "sub/top.md", "sub/keep.log", "sub/b.log", "only.md", "sub/build"}
    assert set(listing.skipped) == {".gitignore", "sub/.gitignore"}


LEFT_OUT = {
    "package-lock.json": ("{}", "It is a lock file."),
    "web/yarn.lock": ("x", "It is a lock file."),
    "go.sum": ("x", "It is a lock file."),
    "logo.svg": ("<svg/>", "It is an SVG image."),
    "app.min.js": ("x", "It is minified code."),
    "packed.js": ("var a=1;" * 1_000, "It is minified code."),
    "api_pb2.py": ("x", "It is generated code."),
    "app.js.map": ("{}", "It is generated code."),
    "client.go": ("// Code generated by gen. DO NOT EDIT.\n\npackage client\n", "It is generated code."),
}
READ = {
    "guide.md": "Code generated by hand. DO NOT EDIT.",
    "openapi.yaml": "# @generated\nopenapi: 3.1.0",
    "locks.md": "x",
    "app.js": "var a = 1;\n" * 1_000,
}


async def test_files_that_nobody_asks_about_are_left_out_with_their_reason(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    write(root, {name: text for name, (text, _) in LEFT_OUT.items()} | READ)
    listing = await list_source(FolderSource(root), {"go.sum": "old", "guide.md": ""})
    assert listing.skipped == {name: reason for name, (_, reason) in LEFT_OUT.items()}
    assert set(listing.changed) == set(READ)
    assert listing.removed == {"go.sum"}  # an earlier version had read it
    named = await list_source(FolderSource(root / "go.sum"))
    assert set(named.changed) == {"go.sum"}


async def test_only_changed_files_are_read_again(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    write(root, {"a.md": "a", "b.md": "b", "c.md": "c", "sub/d.md": "d"})
    first = await list_source(FolderSource(root))
    (root / "a.md").write_text("a, longer")
    (root / "b.md").unlink()
    (root / "c.md").write_bytes(b"\0binary now")
    (root / "e.md").write_text("e")
    second = await list_source(FolderSource(root), first.marks)
    assert set(second.changed) == {"a.md", "e.md"}
    assert second.unchanged == {"sub/d.md"}
    assert second.removed == {"b.md", "c.md"}


async def test_what_cannot_be_read_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "docs"
    write(root, {"a.md": "a"})
    monkeypatch.chdir(root)
    for _ in range(25):  # deeper than a path may be long, so that not even root can look into it
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    deep = "/".join(["d" * 200] * 25)
    listing = await list_source(FolderSource(root), {f"{deep}/b.md": "1-1", "dd/c.md": "1-1"})
    assert set(listing.changed) == {"a.md"}
    assert [reason for reason in listing.skipped.values() if "folder cannot be read" in reason]
    assert listing.removed == {"dd/c.md"}


async def test_a_broken_link_is_not_gone(tmp_path: Path) -> None:
    write(tmp_path / "docs", {"a.md": "a"})
    (tmp_path / "docs" / "b.md").symlink_to("missing.md")
    listing = await list_source(FolderSource(tmp_path / "docs"), {"b.md": "1-1", "c.md": "1-1"})
    assert (set(listing.skipped), listing.removed) == ({"b.md"}, {"c.md"})


async def test_a_file_and_a_folder_that_went_away(tmp_path: Path) -> None:
    write(tmp_path, {"one.md": "one"})
    source = create_source(str(tmp_path / "one.md"), create_context(tmp_path))
    assert (set((await list_source(source)).changed), await source.count()) == ({"one.md"}, 1)
    (tmp_path / "one.md").unlink()
    with pytest.raises(SourceUnavailable):  # not: all documents are gone
        await list_source(source, {"one.md": "1-1"})


# Git


async def test_a_repository_is_fetched_and_refreshed(tmp_path: Path) -> None:
    files: dict[str, str | bytes]
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    files = {
        "README.md": "# Hi",
        "docs/a.md": "a",
        "docs/b.md": "b",
        "logo.png": b"\x89PNG\0",
        "big.bin": lfs,
        ".github/x.yml": "x",
        ".github/y.yml": "y",
    }
    origin = repository(tmp_path / "origin", files)
    (origin / "passwd").symlink_to("/etc/passwd")
    head = commit(origin, {})
    (origin / "uncommitted.md").write_text("not yet")
    source = create_source(str(origin), create_context(tmp_path))
    assert (source.kind, source.revision, await source.count()) == ("git", None, None)
    first = await list_source(source)
    assert {address: item.raw.content for address, item in first.changed.items()} == {
        "README.md": b"# Hi",
        "docs/a.md": b"a",
        "docs/b.md": b"b",
    }
    assert set(first.skipped) == {"logo.png", "big.bin", ".github", "passwd"}
    assert "LFS" in first.skipped["big.bin"]
    assert (source.revision, await source.count()) == (head, 7)

    (origin / "uncommitted.md").unlink()
    newer = commit(origin, {"docs/a.md": "a changed", "docs/b.md": None, "new.md": "new"})
    second = await list_source(source, first.marks)
    assert (set(second.changed), second.unchanged, second.removed) == (
        {"docs/a.md", "new.md"},
        {"README.md"},
        {"docs/b.md"},
    )
    assert source.revision == newer

    git(origin, "commit", "--quiet", "--amend", "--message", "Another history.")
    third = await list_source(create_source(f"file://{origin}", create_context(tmp_path)), second.marks)
    assert (third.changed, third.removed, third.unchanged) == (
        {},
        set(),
        {"README.md", "docs/a.md", "new.md"},
    )
    assert len(list((tmp_path / "cache").iterdir())) == 1


async def test_nothing_of_a_repository_is_run(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a.md": "a", ".gitattributes": "*.md filter=evil\n"})
    trap = f"touch {tmp_path}/sprung"
    for name in (
        "core.fsmonitor",
        "core.sshCommand",
        "uploadpack.packObjectsHook",
        "filter.evil.smudge",
        "credential.helper",
        "core.pager",
    ):
        git(origin, "config", name, trap)
    for hook in ("post-checkout", "pre-receive", "reference-transaction", "post-merge"):
        path = origin / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{trap}\n")
        path.chmod(0o755)
    template = tmp_path / "home" / "template" / "hooks" / "reference-transaction"
    write(
        tmp_path / "home",
        {
            "template/hooks/reference-transaction": f"#!/bin/sh\n{trap}\n",
            ".gitconfig": f"[init]\ntemplateDir = {tmp_path}/home/template\n",
        },
    )
    template.chmod(0o755)
    listing = await list_source(create_source(str(origin), create_context(tmp_path)))
    assert set(listing.changed) == {"a.md"}
    assert not (tmp_path / "sprung").exists()


async def test_a_repository_over_http_is_pinned_to_the_checked_address(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a.md": "a", "docs/b.md": "b"})
    async with git_server(origin) as served:
        world = FakeNetwork({"code.test": ("127.0.0.1",), "inner.test": ("10.0.0.1",)})
        place = f"http://code.test:{served.port}/team/repo.git"
        write(
            tmp_path / "home", {".gitconfig": '[url "http://127.0.0.1:1/"]\ninsteadOf = http://code.test\n'}
        )  # nobody's configuration counts
        assert set(
            (await list_source(create_source(place, create_context(tmp_path, connector=world)))).changed
        ) == {
            "a.md",
            "docs/b.md",
        }
        assert world.lookups == ["code.test"]
        request_count = len(served.requests)
        with pytest.raises(SourceUnavailable, match="private, local or reserved"):
            await list_source(create_source(place, create_context(tmp_path, connector=world, private=False)))
        for wrong in (
            "https://inner.test/x.git",
            "https://169.254.169.254/x.git",
            "git@inner.test:x.git",
            "ssh://git@127.1/x.git",
        ):
            with pytest.raises(SourceUnavailable, match="private, local or reserved"):
                await list_source(
                    create_source(wrong, create_context(tmp_path, connector=world, private=False))
                )
        assert len(served.requests) == request_count


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ('401 Unauthorized\r\nWWW-Authenticate: Basic realm="x"', "needs credentials"),
        ("302 Found\r\nLocation: /other.git/info/refs?service=git-upload-pack", "redirects"),
        ("404 Not Found", "no repository"),
    ],
)
async def test_a_repository_that_refuses(tmp_path: Path, status: str, said: str) -> None:
    trap = f"touch {tmp_path}/sprung"
    write(
        tmp_path / "home", {".gitconfig": f'[credential]\nhelper = "!{trap}"\n[core]\naskPass = "{trap}"\n'}
    )
    async with git_server(tmp_path) as served:
        served.refuse = status
        with pytest.raises(SourceUnavailable, match=said):
            await list_source(
                create_source(f"git+http://127.0.0.1:{served.port}/repo", create_context(tmp_path))
            )
        assert len(served.requests) == 1
        assert "authorization:" not in served.requests[0].lower()
    assert not (tmp_path / "sprung").exists()


async def test_a_repository_over_ssh(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a.md": "a"})
    write(
        tmp_path / "bin",
        {"ssh": f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/asked\nexec git upload-pack {origin}\n'},
    )
    (tmp_path / "bin" / "ssh").chmod(0o755)
    context = create_context(tmp_path, connector=FakeNetwork({"git.test": ("10.0.0.1",)}))
    variables = {**context.variables, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "MY_TOKEN": "secret"}
    source = create_source(
        "git@git.test:team/repo.git", SourceContext(context.fetcher, context.cache, variables)
    )
    assert set((await list_source(source)).changed) == {"a.md"}
    command_lines = (tmp_path / "asked").read_text().splitlines()
    assert "BatchMode=yes" in command_lines
    assert command_lines[-2:] == ["git@git.test", "git-upload-pack '/team/repo.git'"]


async def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    with pytest.raises(SourceUnavailable, match="no such branch"):
        await list_source(create_source(str(empty), create_context(tmp_path)))
    (tmp_path / "plain").mkdir()
    with pytest.raises(SourceUnavailable, match="no repository"):
        await list_source(create_source(str(tmp_path / "plain"), create_context(tmp_path), kind="git"))
    context = create_context(tmp_path)
    with pytest.raises(SourceUnavailable, match="not installed"):
        await list_source(
            create_source(str(empty), SourceContext(context.fetcher, context.cache, {"PATH": str(empty)}))
        )


async def test_a_reader_may_leave_early(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {f"{n}.md": "x" * 100_000 for n in range(20)})
    async with contextlib.aclosing(create_source(str(origin), create_context(tmp_path)).items({})) as items:
        assert isinstance(await anext(items), ChangedItem)
    assert len((await list_source(create_source(str(origin), create_context(tmp_path)))).changed) == 20


@pytest.mark.parametrize(
    ("location", "remote"),
    [
        (
            "https://github.com/o/r",
            GitRemote("https://github.com/o/r.git", "https", "github.com", "https://github.com/o/r"),
        ),
        (
            "https://GitHub.com/o/r.git",
            GitRemote("https://github.com/o/r.git", "https", "github.com", "https://github.com/o/r"),
        ),
        (
            "https://github.com/o/r/tree/v1.2/docs/x",
            GitRemote(
                "https://github.com/o/r.git",
                "https",
                "github.com",
                "https://github.com/o/r",
                "v1.2",
                "docs/x",
            ),
        ),
        (
            "https://gitlab.com/g/s/r/-/blob/main/a.md",
            GitRemote(
                "https://gitlab.com/g/s/r.git",
                "https",
                "gitlab.com",
                "https://gitlab.com/g/s/r",
                "main",
                "a.md",
            ),
        ),
        (
            "git@github.com:o/r.git",
            GitRemote("ssh://git@github.com/o/r.git", "ssh", "github.com", "https://github.com/o/r"),
        ),
        ("ssh://git@git.test:2222/o/r.git", GitRemote("ssh://git@git.test:2222/o/r.git", "ssh", "git.test")),
        ("https://git.test/o/r.git", GitRemote("https://git.test/o/r.git", "https", "git.test")),
        ("git+https://git.test/o/r", GitRemote("https://git.test/o/r", "https", "git.test")),
        ("https://github.com/o/r/issues", None),
        ("https://github.com/topics/git", None),
        ("https://gitlab.com/g/r/-/issues", None),
        ("https://docs.test/guide", None),
        ("./folder", None),
        ("ext::sh -c whoami", None),
        ("git://git.test/x", None),
    ],
)
def test_which_locations_are_repositories(location: str, remote: GitRemote | None) -> None:
    assert parse_remote(location) == remote


def test_links_lead_to_the_file() -> None:
    github, gitlab, other = (
        parse_remote(text)
        for text in ("git@github.com:o/r.git", "https://gitlab.com/g/r", "https://git.test/r.git")
    )
    assert github is not None
    assert gitlab is not None
    assert other is not None
    assert github.link("abc", "docs/a b.md") == "https://github.com/o/r/blob/abc/docs/a%20b.md"
    assert gitlab.link("abc", "a.md") == "https://gitlab.com/g/r/-/blob/abc/a.md"
    assert other.link("abc", "a.md") is None


async def test_a_folder_and_a_file_of_a_repository(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"a.md": "a", "docs/b.md": "b", "docs-old/c.md": "c"})
    async with git_server(origin) as served:
        context = create_context(tmp_path)
        for below, expected in {"docs": {"docs/b.md"}, "a.md": {"a.md"}}.items():
            remote = GitRemote(f"http://127.0.0.1:{served.port}/r.git", "http", ref="main", folder=below)
            source = GitSource(remote, "x", context.cache, context.variables, context.fetcher)
            assert set((await list_source(source)).changed) == expected
        with pytest.raises(SourceUnavailable, match="has no nothing"):
            await list_source(
                GitSource(
                    GitRemote(str(origin), "file", folder="nothing"),
                    "x",
                    context.cache,
                    context.variables,
                    context.fetcher,
                )
            )


# Locations


async def test_a_web_site_is_crawled(tmp_path: Path) -> None:
    async with serve_site({"/": Page('<a href="/a">a</a>'), "/a": Page("a", "text/plain")}) as served:
        source = create_source(f"{served.url}/", create_context(tmp_path), limits=CrawlLimits(depth=1))
        assert (source.kind, source.location, await source.count()) == ("web", f"{served.url}/", None)
        first = await list_source(source)
        assert set(first.changed) == {f"{served.url}/", f"{served.url}/a"}
        assert (await list_source(source, first.marks)).unchanged == set(first.changed)


@pytest.mark.parametrize(
    "location",
    [
        "",
        "  ",
        "-x",
        "--upload-pack=touch sprung",
        "missing",
        "ext::sh -c 'touch sprung'",
        "git://h.test/x",
        "ftp://h.test/x",
        "s3://bucket/x",
        "https://user:secret@github.com/o/r",
        "ssh://-oProxyCommand=x/y",
        "ssh://host",
        "git@-x:y",
        "https://",
        "file://other/etc",
        "a\0b",
    ],
)
def test_locations_that_mean_nothing(location: str, tmp_path: Path) -> None:
    with pytest.raises(CaipeError) as refused:
        create_source(location, create_context(tmp_path))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", [None, "git", "folder"])
def test_this_machine_may_be_closed(kind: SourceKind | None, tmp_path: Path) -> None:
    for location in (str(tmp_path), f"file://{tmp_path}", ".", "~"):
        with pytest.raises(SourceUnavailable, match="cannot be read from here"):
            create_source(location, create_context(tmp_path, allow_local=False), kind=kind)


def test_what_of_this_machine_a_location_means(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    inside = [
        "/etc",
        "file:///etc",
        "FILE:///etc",
        "file://localhost/etc",
        "git+file:///etc",
        f"file://{tmp_path}/%2e%2e/../../../../../../etc",
        "/etc/.",
    ]
    inside += [
        "file:///etc#/../tmp",
        "file:///etc?/../tmp",
        "fi\tle:///etc",
        f"{tmp_path}/link",
        " /etc ",
        "/tmp/../etc",
    ]
    for location in inside:
        assert resolve_local_path(location) == Path("/etc"), location
    for location in (
        "https://docs.test/",
        "git@git.test:x/y.git",
        "ssh://git.test/x",
        "https://github.com/o/r",
        "git+http://docs.test/",
    ):
        assert resolve_local_path(location) is None
    assert resolve_local_path("docs") == tmp_path.resolve() / "docs"
    assert resolve_local_path("git@git.test:x", "folder") == tmp_path.resolve() / "git@git.test:x"
