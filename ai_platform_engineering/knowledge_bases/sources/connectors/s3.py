"""The connector of S3 and of what speaks its protocol (MinIO, Ceph): the objects of a bucket below a
prefix."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

from ai_platform_engineering.core.errors import ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DOCUMENT_BYTES
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiClient,
    ApiEndpoint,
    ApiResponse,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.api_errors import ApiError
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import (
    ApiSource,
    ListedDocument,
    ListingRules,
    PassCursor,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.aws_signature import (
    AwsCredentials,
    encode_path,
    encode_query,
    sign_request,
)
from ai_platform_engineering.knowledge_bases.sources.left_out_files import (
    explain_left_out_content,
    explain_left_out_name,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    RemovedItem,
    SkippedItem,
    SourceItem,
)

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_MAX_PAGES = 10_000
_CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


class S3Source(ApiSource):
    """The objects below a prefix. Addresses are their keys, marks their ETags.

    S3 cannot list changes alone: each pass lists everything, a thousand objects in a request."""

    kind = "s3"
    page_size = 1000
    batch_size = 1

    def __init__(
        self,
        bucket: str,
        prefix: str,
        endpoint: ApiEndpoint,
        credentials: AwsCredentials,
        access: ApiAccess,
        rules: ListingRules | None = None,
    ) -> None:
        location = f"s3:{bucket}"
        if prefix:
            location += f"/{prefix}"
        super().__init__(location, endpoint, access, rules)
        self._bucket = bucket
        self._prefix = prefix
        self._credentials = credentials

    async def check(self, api: ApiClient) -> None:
        try:
            await self._get(api, "", {"list-type": "2", "prefix": self._prefix, "max-keys": "1"})
        except ApiError as error:
            if error.is_missing:
                raise SourceUnavailable(
                    f"S3 has no bucket {self._bucket} at {self._endpoint.address_variable}."
                ) from None
            raise

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        query = {"list-type": "2", "prefix": self._prefix, "max-keys": str(self.page_size)}
        for _ in range(_MAX_PAGES):
            response = await self._get(api, "", query)
            page = _parse_listing(response.content)
            for entry in page.iterfind("{*}Contents"):
                key = _read(entry, "Key")
                if key and not key.endswith("/"):
                    yield ListedDocument(key, _read(entry, "ETag").strip('"'), _read(entry, "Size"))
            token = _read(page, "NextContinuationToken")
            if _read(page, "IsTruncated") != "true" or not token:
                return
            query = {**query, "continuation-token": token}
        raise SourceUnavailable(f"{self.location} has more objects than are read. Use a longer prefix.")

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        for document in documents:
            yield await self._fetch_object(api, document)

    async def _fetch_object(self, api: ApiClient, document: ListedDocument) -> SourceItem:
        reason = explain_left_out_name(document.address)
        if document.key.isdecimal() and int(document.key) > MAX_DOCUMENT_BYTES:
            reason = f"It is larger than {MAX_DOCUMENT_BYTES // 1_000_000} MB."
        if reason:
            return SkippedItem(document.address, reason)
        try:
            response = await self._get(api, document.address, {}, max_bytes=MAX_DOCUMENT_BYTES)
        except ApiError as error:
            if error.is_missing:
                return RemovedItem(document.address)
            if error.status == 403:  # archived, or with rules of its own
                return SkippedItem(document.address, "S3 does not let this account read it.")
            raise
        reason = explain_left_out_content(document.address, response.content)
        if reason:
            return SkippedItem(document.address, reason)
        media_type = response.headers.get("content-type", "")
        if media_type.startswith("binary/octet-stream"):  # what S3 says when nobody said anything
            media_type = ""
        raw = RawDocument(
            document.address, response.content, media_type, changed=_read_time(response.headers)
        )
        return ChangedItem(raw, document.mark)

    async def _get(
        self, api: ApiClient, key: str, query: Mapping[str, str], max_bytes: int | None = None
    ) -> ApiResponse:
        base = self._endpoint.parse()
        path = f"/{encode_path(key)}"
        encoded_query = encode_query(query)
        signed_path = f"{base.path.rstrip('/')}{path}"
        headers = sign_request(
            self._credentials, base.authority, signed_path, encoded_query, self._access.clock()
        )
        if encoded_query:
            path += f"?{encoded_query}"
        return await api.get(path, headers={**headers, "Accept": "*/*"}, max_bytes=max_bytes)

    def _is_listing_due(self, last_pass: PassCursor, now: datetime, known_documents: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class S3Connector:
    """Creates the sources of `s3:BUCKET/PREFIX`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    kind = "s3"
    example = "s3:BUCKET/PREFIX"
    options = ()

    def create(self, address: str, options: Mapping[str, str]) -> S3Source:
        bucket, _, prefix = address.removeprefix("//").partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise Refused("Give a bucket, for example s3:handbook or s3:handbook/runbooks/.")
        credentials = self._read_credentials()
        endpoint = self._create_endpoint(bucket, credentials)
        return S3Source(bucket, prefix, endpoint, credentials, self.access, self.rules)

    def _read_credentials(self) -> AwsCredentials:
        settings = self.settings
        region = settings.aws_region or settings.aws_default_region
        if region is None and settings.s3_endpoint is not None:
            region = "us-east-1"  # what servers that are not Amazon's call themselves
        if settings.aws_key_id is None or settings.aws_secret is None or region is None:
            raise ConfigurationError(
                f"S3 is not configured. Set {_CREDENTIALS}, and AWS_REGION, or S3_ENDPOINT_URL for a server "
                "that is not Amazon's."
            )
        token = ""
        if settings.aws_session_token is not None:
            token = settings.aws_session_token.get_secret_value()
        return AwsCredentials(region, settings.aws_key_id, settings.aws_secret.get_secret_value(), token)

    def _create_endpoint(self, bucket: str, credentials: AwsCredentials) -> ApiEndpoint:
        """Amazon's has the bucket in the name of its host, others have it in the path."""
        variable = "AWS_REGION"
        host = f"s3.{credentials.region}.amazonaws.com"
        if self.settings.s3_endpoint is not None:
            variable = "S3_ENDPOINT_URL"
            base_url = f"{self.settings.s3_endpoint.rstrip('/')}/{bucket}"
        elif "." in bucket:  # the certificate of the host would not fit
            base_url = f"https://{host}/{bucket}"
        else:
            base_url = f"https://{bucket}.{host}"
        secrets = tuple(filter(None, (credentials.secret, credentials.session_token)))
        return ApiEndpoint("S3", base_url, variable, _CREDENTIALS, secrets=secrets)


def _parse_listing(content: bytes) -> ElementTree.Element:
    try:
        if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            raise SourceUnavailable("S3 returned an invalid listing.")
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:
        raise SourceUnavailable("S3 returned an invalid listing.") from None


def _read(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""


def _read_time(headers: Mapping[str, str]) -> datetime | None:
    try:
        return parsedate_to_datetime(headers.get("last-modified", ""))
    except ValueError:
        return None
