"""The stand-in for PagerDuty's REST API: incidents over the health of the estate, and who is on call."""

import hmac
from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.demo.estate.cluster_objects import Json
from ai_platform_engineering.demo.estate.company import CompanyService, Person, Team
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn
from ai_platform_engineering.demo.pagerduty.api_requests import (
    UNAUTHORIZED_CODE,
    PagerDutyApiError,
    error_response,
    filter_by_ids,
    filter_by_name,
    filter_by_time,
    not_found,
    page_response,
    read_reference_ids,
)
from ai_platform_engineering.demo.pagerduty.directory import PRIORITIES, PagerDutyDirectory, make_id
from ai_platform_engineering.demo.pagerduty.incident_api import IncidentApi
from ai_platform_engineering.demo.pagerduty.incident_renderer import IncidentRenderer
from ai_platform_engineering.demo.pagerduty.incidents import IncidentBook

DEMO_TOKEN = "demo-pagerduty-token"

Handler = Callable[[Request], Awaitable[Response]]


def create_app(estate: Estate) -> Starlette:
    directory = PagerDutyDirectory(estate.company)
    book = IncidentBook(estate)
    estate.register_records("incidents", book.list_records)
    renderer = IncidentRenderer(estate, directory)
    api = _DirectoryApi(estate, directory, book, renderer)
    routes = (
        ("GET", "/users", api.list_users),
        ("GET", "/users/me", api.show_me),
        ("GET", "/users/{id}", api.show_user),
        ("GET", "/teams", api.list_teams),
        ("GET", "/teams/{id}", api.show_team),
        ("GET", "/teams/{id}/members", api.list_members),
        ("GET", "/services", api.list_services),
        ("GET", "/services/{id}", api.show_service),
        ("GET", "/services/{id}/change_events", api.list_service_change_events),
        ("GET", "/service_dependencies/technical_services/{id}", api.list_dependencies),
        ("GET", "/escalation_policies", api.list_policies),
        ("GET", "/escalation_policies/{id}", api.show_policy),
        ("GET", "/schedules", api.list_schedules),
        ("GET", "/schedules/{id}", api.show_schedule),
        ("GET", "/schedules/{id}/users", api.list_schedule_users),
        ("GET", "/v3/schedules", api.list_shift_schedules),
        ("GET", "/oncalls", api.list_on_calls),
        ("GET", "/priorities", api.list_priorities),
        ("GET", "/change_events", api.list_change_events),
        ("GET", "/change_events/{id}", api.show_change_event),
        *IncidentApi(estate, directory, book, renderer).routes(),
    )
    return Starlette(
        routes=[Route(path, _authenticated(handler), methods=[method]) for method, path, handler in routes],
        exception_handlers={PagerDutyApiError: error_response},
    )


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    return {"PAGERDUTY_API_URL": running.url.rstrip("/"), "PAGERDUTY_API_KEY": DEMO_TOKEN}


STAND_IN = StandIn("pagerduty", create_app, _variables)


class _DirectoryApi:
    def __init__(
        self, estate: Estate, directory: PagerDutyDirectory, book: IncidentBook, renderer: IncidentRenderer
    ) -> None:
        self._estate = estate
        self._directory = directory
        self._book = book
        self._renderer = renderer
        self._company = estate.company

    async def list_users(self, request: Request) -> Response:
        users = [self._directory.user(person) for person in self._company.people]
        users = filter_by_ids(request, "team_ids", users, read_reference_ids("teams"))
        return page_response(request, "users", filter_by_name(request, users))

    async def show_me(self, request: Request) -> Response:
        return JSONResponse({"user": self._directory.user(self._directory.account_owner)})

    async def show_user(self, request: Request) -> Response:
        return JSONResponse({"user": self._directory.user(self._find_person(request))})

    async def list_teams(self, request: Request) -> Response:
        teams = [self._directory.team(team) for team in self._company.teams]
        return page_response(request, "teams", filter_by_name(request, teams))

    async def show_team(self, request: Request) -> Response:
        return JSONResponse({"team": self._directory.team(self._find_team(request))})

    async def list_members(self, request: Request) -> Response:
        return page_response(request, "members", self._directory.members(self._find_team(request)))

    async def list_services(self, request: Request) -> Response:
        services = [self._service(service) for service in self._company.services]
        services = filter_by_ids(request, "team_ids", services, read_reference_ids("teams"))
        return page_response(request, "services", filter_by_name(request, services))

    async def show_service(self, request: Request) -> Response:
        return JSONResponse({"service": self._service(self._find_service(request))})

    async def list_service_change_events(self, request: Request) -> Response:
        events = self._renderer.change_events(self._find_service(request))
        return page_response(request, "change_events", filter_by_time(request, events, "timestamp"))

    async def list_dependencies(self, request: Request) -> Response:
        return JSONResponse({"relationships": self._directory.dependencies(self._find_service(request))})

    async def list_policies(self, request: Request) -> Response:
        policies = [self._directory.policy(team) for team in self._company.teams]
        policies = filter_by_ids(request, "team_ids", policies, read_reference_ids("teams"))
        return page_response(request, "escalation_policies", filter_by_name(request, policies))

    async def show_policy(self, request: Request) -> Response:
        team = self._find_team_of(request, "escalation_policy")
        return JSONResponse({"escalation_policy": self._directory.policy(team)})

    async def list_schedules(self, request: Request) -> Response:
        schedules = [self._directory.schedule(team, self._estate.now) for team in self._company.teams]
        schedules = filter_by_ids(request, "team_ids", schedules, read_reference_ids("teams"))
        schedules = filter_by_ids(request, "user_ids", schedules, read_reference_ids("users"))
        return page_response(request, "schedules", filter_by_name(request, schedules))

    async def show_schedule(self, request: Request) -> Response:
        team = self._find_team_of(request, "schedule")
        return JSONResponse({"schedule": self._directory.schedule(team, self._estate.now)})

    async def list_schedule_users(self, request: Request) -> Response:
        team = self._find_team_of(request, "schedule")
        return JSONResponse({"users": [self._directory.user(person) for person in team.members]})

    async def list_shift_schedules(self, request: Request) -> Response:
        """Schedules of the newer kind; this account has none."""
        return page_response(request, "schedules", [])

    async def list_on_calls(self, request: Request) -> Response:
        items: list[Json] = []
        for team in self._company.teams:
            items += self._directory.on_calls(team, self._estate.now)
        for parameter, key in (
            ("escalation_policy_ids", "escalation_policy"),
            ("schedule_ids", "schedule"),
            ("user_ids", "user"),
        ):
            items = filter_by_ids(request, parameter, items, read_reference_ids(key))
        return page_response(request, "oncalls", items)

    async def list_priorities(self, request: Request) -> Response:
        priorities = [self._directory.priority_reference(name) | {"name": name} for name in PRIORITIES]
        return page_response(request, "priorities", priorities)

    async def list_change_events(self, request: Request) -> Response:
        services = self._company.services
        team_ids = set(request.query_params.getlist("team_ids[]"))
        if team_ids:
            services = tuple(item for item in services if make_id("team", item.team.name) in team_ids)
        events = self._collect_change_events(services)
        return page_response(request, "change_events", filter_by_time(request, events, "timestamp"))

    async def show_change_event(self, request: Request) -> Response:
        for event in self._collect_change_events(self._company.services):
            if event["id"] == request.path_params["id"]:
                return JSONResponse({"change_event": event})
        raise not_found()

    def _collect_change_events(self, services: tuple[CompanyService, ...]) -> list[Json]:
        """The newest first."""
        events: list[Json] = []
        for service in services:
            events += self._renderer.change_events(service)
        return sorted(events, key=lambda event: str(event["timestamp"]), reverse=True)

    def _service(self, service: CompanyService) -> Json:
        return self._directory.service(service, self._book.service_status(service))

    def _find_person(self, request: Request) -> Person:
        person = self._directory.find_person(request.path_params["id"])
        if person is None:
            raise not_found()
        return person

    def _find_team(self, request: Request) -> Team:
        return self._find_team_of(request, "team")

    def _find_team_of(self, request: Request, kind: str) -> Team:
        """The team by the id of it, of its schedule or of its policy."""
        for team in self._company.teams:
            if make_id(kind, team.name) == request.path_params["id"]:
                return team
        raise not_found()

    def _find_service(self, request: Request) -> CompanyService:
        service = self._directory.find_service(request.path_params["id"])
        if service is None:
            raise not_found()
        return service


def _authenticated(handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        header = request.headers.get("Authorization", "")
        if not hmac.compare_digest(header.encode(), f"Token token={DEMO_TOKEN}".encode()):
            raise PagerDutyApiError(401, UNAUTHORIZED_CODE, "Unauthorized")
        return await handler(request)

    return endpoint
