"""Objects of an S3 bucket come in, and follow changes and deletions; requests are signed as Amazon's own
library does it."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.knowledge_bases.sources.connectors.aws_signature import (
    AwsCredentials,
    encode_path,
    encode_query,
    sign_request,
)
from tests.support.connectors import RecordedWaits, build_connectors
from tests.support.fakes.api_stand_in import ApiStandIn, Failure, serve_api
from tests.support.knowledge import (
    add_datasource,
    job_counts,
    open_knowledge_base,
    refresh_datasource,
    search_titles,
)

CREDENTIALS = AwsCredentials("eu-west-1", "AKIDEXAMPLE", "secret/of+the=key", "a-session-token")


class Bucket(ApiStandIn):
    """A bucket named `handbook`; it lists two objects at a time, and checks signatures."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}
        self.refused: set[str] = set()

    def routes(self) -> Sequence[Route]:
        return [Route("/handbook/{key:path}", self._serve), Route("/{path:path}", self._missing)]

    async def _missing(self, request: Request) -> Response:
        return Response("<Error><Code>NoSuchBucket</Code></Error>", 404, media_type="application/xml")

    async def _serve(self, request: Request) -> Response:
        if not self._is_signed(request):
            return Response("<Error><Code>SignatureDoesNotMatch</Code></Error>", 403)
        key = request.path_params["key"]
        if not key:
            return self._list(request)
        if key in self.refused:
            return Response("<Error><Code>AccessDenied</Code></Error>", 403)
        if key not in self.objects:
            return Response("<Error><Code>NoSuchKey</Code></Error>", 404)
        return Response(self.objects[key], media_type="binary/octet-stream")

    def _is_signed(self, request: Request) -> bool:
        """Whether the signature is the one of what was sent."""
        raw_path = request.scope["raw_path"].decode().partition("?")[0]
        raw_query = request.scope["query_string"].decode()
        parameters: dict[str, str] = {}
        for pair in filter(None, raw_query.split("&")):
            name, _, value = pair.partition("=")
            parameters[unquote(name)] = unquote(value)
        query = encode_query(parameters)
        sent_at = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        path = quote(unquote(raw_path), safe="/-_.~")
        expected = sign_request(CREDENTIALS, request.headers["host"], path, query, sent_at)
        return expected["Authorization"] == request.headers.get("authorization")

    def _list(self, request: Request) -> Response:
        prefix = request.query_params["prefix"]
        after = request.query_params.get("continuation-token", "")
        keys = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        page = keys[: min(2, int(request.query_params["max-keys"]))]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>&quot;{_etag(self.objects[key])}&quot;</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in page
        )
        more = ""
        if len(page) < len(keys):
            more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        truncated = "true" if more else "false"
        return Response(
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{truncated}</IsTruncated>{more}{contents}</ListBucketResult>",
            media_type="application/xml",
        )


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@pytest.fixture
async def bucket() -> AsyncIterator[Bucket]:
    stand_in = Bucket()
    stand_in.objects = {
        "docs/": b"",
        "docs/guide.md": b"# Guide\n\nPull the giraffe lever.\n",
        "docs/tea & cake/ü+1~x.md": b"# Cake\n\nOkapi cake.\n",
        "docs/zoo.md": b"# Zoo\n\nZebras graze.\n",
        "docs/package-lock.json": b"{}",
        "other/secret.md": b"# Other\n\nElsewhere.\n",
    }
    async with serve_api(stand_in) as running:
        yield running


def variables(bucket: Bucket) -> dict[str, str]:
    return {
        "S3_ENDPOINT_URL": bucket.url,
        "AWS_REGION": CREDENTIALS.region,
        "AWS_ACCESS_KEY_ID": CREDENTIALS.key_id,
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS.secret,
        "AWS_SESSION_TOKEN": CREDENTIALS.session_token,
    }


async def test_objects_below_a_prefix_come_in(tmp_path: Path, bucket: Bucket) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(bucket))) as kb:
        job = await add_datasource(kb, "s3:handbook/docs/")
        assert job_counts(job) == ("done", 3, 0, 0, 1)
        assert job.failed == (("docs/package-lock.json", "It is a lock file."),)
        assert await search_titles(kb, "okapi") == ["Cake"]
        assert await search_titles(kb, "giraffe lever") == ["Guide"]
        assert await search_titles(kb, "elsewhere") == []


async def test_etags_tell_changes_and_listings_deletions(tmp_path: Path, bucket: Bucket) -> None:
    async with open_knowledge_base(tmp_path, connectors=build_connectors(variables(bucket))) as kb:
        await add_datasource(kb, "s3:handbook/docs/", name="docs")
        bucket.take_requests()
        assert job_counts(await refresh_datasource(kb, "docs"))[:4] == ("done", 0, 3, 0)
        assert {request.path for request in bucket.take_requests()} == {"/handbook/"}
        bucket.objects["docs/guide.md"] = b"# Guide\n\nPull the wombat lever.\n"
        bucket.refused.add("docs/zoo.md")
        bucket.objects["docs/zoo.md"] = b"# Zoo\n\nNobody may see it.\n"
        del bucket.objects["docs/tea & cake/ü+1~x.md"]
        assert job_counts(await refresh_datasource(kb, "docs")) == ("done", 1, 0, 1, 2)
        assert await search_titles(kb, "wombat") == ["Guide"]
        assert await search_titles(kb, "zebras") == ["Zoo"]  # what cannot be read any more is not gone
        assert await search_titles(kb, "okapi") == []


async def test_slow_down_is_waited_for_and_errors_lose_nothing(tmp_path: Path, bucket: Bucket) -> None:
    waits = RecordedWaits()
    bucket.fail(Failure(503, {"Retry-After": "3"}, path="guide.md"))
    connectors = build_connectors(variables(bucket), waits=waits)
    async with open_knowledge_base(tmp_path, connectors=connectors) as kb:
        assert job_counts(await add_datasource(kb, "s3:handbook/docs/", name="docs"))[1] == 3
        assert len(waits.seconds) == 1
        wrong = variables(bucket) | {"AWS_SECRET_ACCESS_KEY": "another"}
        missing = await add_datasource(kb, "s3:no-such-bucket")
        assert "no bucket no-such-bucket" in missing.problem
    async with open_knowledge_base(tmp_path, connectors=build_connectors(wrong)) as kb:
        job = await refresh_datasource(kb, "docs")
        assert job.state == "failed"
        assert "AWS_ACCESS_KEY_ID" in job.problem
        assert await search_titles(kb, "zebras") == ["Zoo"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        (
            "/handbook/",
            {"list-type": "2", "prefix": "a b/ü+&=", "max-keys": "1000", "continuation-token": "x/y=="},
        ),
        ("/handbook/docs/tea & cake/ü+1~(x).md", {}),
    ],
)
def test_signatures_are_those_of_amazons_library(path: str, query: dict[str, str]) -> None:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    now = datetime(2026, 3, 4, 12, 30, tzinfo=UTC)
    encoded_path, encoded_query = encode_path(path), encode_query(query)
    ours = sign_request(CREDENTIALS, "s3.example.test", encoded_path, encoded_query, now)
    credentials = Credentials(CREDENTIALS.key_id, CREDENTIALS.secret, CREDENTIALS.session_token)
    request = AWSRequest("GET", f"https://s3.example.test{encoded_path}", params=query)
    request.headers["X-Amz-Content-SHA256"] = ours["x-amz-content-sha256"]
    request.headers["X-Amz-Security-Token"] = CREDENTIALS.session_token
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    request.context["timestamp"] = ours["x-amz-date"]
    signer = auth.S3SigV4Auth(credentials, "s3", CREDENTIALS.region)
    canonical = signer.canonical_request(request)
    text = signer.string_to_sign(request, canonical)
    assert ours["Authorization"].rpartition("Signature=")[2] == signer.signature(text, request)


def test_addresses_of_amazon_and_of_others() -> None:
    amazon = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    connector = build_connectors(amazon)["s3"]
    source = connector.create("handbook/docs", {})
    assert source.location == "s3:handbook/docs"
    assert "https://handbook.s3.eu-west-1.amazonaws.com" in source.scope
    assert "https://s3.eu-west-1.amazonaws.com/hand.book" in connector.create("hand.book", {}).scope
    with pytest.raises(Refused):
        connector.create("No Bucket", {})
    with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID"):
        build_connectors({})["s3"].create("handbook", {})
