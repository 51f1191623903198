"""The company's tickets: one project for each team, work on its services, and what a release needs."""

from dataclasses import dataclass
from datetime import timedelta

from ai_platform_engineering.demo.atlassian.api_access import find_demo_user
from ai_platform_engineering.demo.estate.company import Company
from ai_platform_engineering.demo.jira.state import DONE, IN_PROGRESS, IN_REVIEW, JiraState
from ai_platform_engineering.demo.jira.ticket_builder import TicketBuilder


@dataclass(frozen=True, slots=True)
class KeyTickets:
    """Keys of the tickets that other systems name."""

    release: str
    rename: str
    earlier_failure: str


def build_jira_state(company: Company) -> JiraState:
    return _SampleTickets(company).build()


def find_key_tickets(company: Company) -> KeyTickets:
    """The keys, which are the same for the same company."""
    tickets = _SampleTickets(company)
    tickets.build()
    return tickets.key_tickets()


class _SampleTickets:
    def __init__(self, company: Company) -> None:
        self._company = company
        self._release = company.failing_release
        self._builder = TicketBuilder(company)
        store, payments, platform = company.teams
        self._store = self._builder.add_project(store)
        self._payments = self._builder.add_project(payments)
        self._platform = self._builder.add_project(platform)
        self._store_people = store.members
        self._payments_people = payments.members
        self._platform_people = platform.members
        self._release_key = ""
        self._rename_key = ""
        self._earlier_key = ""

    def build(self) -> JiraState:
        # Keys grow with time: the oldest tickets of a project come first.
        self._add_store_work()
        self._add_payments_work()
        self._add_late_mails()
        self._add_rename()
        self._add_platform_work()
        self._add_release()
        return self._builder.state

    def key_tickets(self) -> KeyTickets:
        return KeyTickets(self._release_key, self._rename_key, self._earlier_key)

    def _add_earlier_failure(self) -> None:
        """An old ticket with the same symptom and another cause, which is gone."""
        service = self._release.service
        on_call, _, engineer = self._store_people
        issue = self._builder.add(
            self._store,
            "Bug",
            f"{service.name} fails: the payment provider answers too late",
            days=9.1,
            reporter=on_call,
            assignee=engineer,
            status=DONE,
            priority="Highest",
            labels=("incident",),
            components=(service.name,),
            description=(
                f"Orders fail and pods of {service.name} restart. They log timeouts of calls to payments,"
                " which waits for the payment provider."
            ),
            hours_of_work=20,
        )
        self._builder.comment(
            issue,
            on_call,
            9.09,
            f"Restarted the pods of {service.name}. Orders work again."
            f" If {service.name} fails again: restart its pods first.",
        )
        self._builder.comment(
            issue, engineer, 8.6, "The provider was slow for 40 minutes. payments gives up sooner now."
        )
        self._earlier_key = issue.key

    def _add_rename(self) -> None:
        release = self._release
        issue = self._builder.add(
            self._platform,
            "Story",
            f"Rename the setting {release.old_setting} to {release.new_setting}",
            days=15,
            reporter=self._platform_people[0],
            assignee=release.author,
            status=IN_PROGRESS,
            labels=("settings",),
            description=(
                f"The name {_code(release.old_setting)} means different things in different services. Each"
                f" service reads {_code(release.new_setting)} in future.\n\n"
                "* The code of a service reads the new name.\n"
                "* Its manifest sets the new name *in the same release*."
            ),
        )
        self._builder.comment(
            issue,
            release.author,
            self._days_before_deployment(3),
            f"The code of {release.service.name} is ready for review.",
        )
        self._rename_key = issue.key

    def _add_release(self) -> None:
        """The ticket that the release needs, which is not done though the release is out."""
        release = self._release
        service = release.service
        version = f"{service.name} {service.version}"
        issue = self._builder.add(
            self._store,
            "Task",
            f"Release {version}",
            days=2,
            reporter=self._store_people[0],
            assignee=release.author,
            status=IN_PROGRESS,
            priority="High",
            labels=("release",),
            components=(service.name,),
            fix_versions=(version,),
            description=(
                f"Replaces {service.previous_version}. Before the rollout:\n\n"
                "* tests are green\n"
                f"* {_code(release.new_setting)} is set in {_code('deploy/deployment.yaml')}\n"
                "* the release notes are written\n\n"
                f"The change comes from {self._rename_key}."
            ),
        )
        moment = self._days_before_deployment(0.2)
        self._builder.comment(issue, release.author, moment, "Tests are green. Release notes are written.")
        self._builder.link(issue, self._rename_key, "Relates", "relates to", "relates to")
        self._release_key = issue.key

    def _add_store_work(self) -> None:
        on_call, author, engineer = self._store_people
        epic = self._builder.add(
            self._store,
            "Epic",
            "Order in one page",
            days=40,
            reporter=on_call,
            assignee=on_call,
            status=IN_PROGRESS,
            description="Basket, address and payment in one page.",
        )
        epic.epic_name = "One page"
        self._builder.add(
            self._store,
            "Bug",
            "Storefront is slow for visitors without a basket",
            days=31,
            reporter=engineer,
            assignee=engineer,
            status=DONE,
            priority="Low",
            components=("storefront",),
            hours_of_work=70,
            description="An empty basket was created at each visit.",
        )
        story = self._builder.add(
            self._store,
            "Story",
            "Show the day of delivery before the order is confirmed",
            days=24,
            reporter=on_call,
            assignee=engineer,
            components=("storefront",),
            description="The storefront asks inventory for the day and shows it beside the price.",
        )
        story.epic_link = epic.key
        self._builder.add(
            self._store,
            "Task",
            "Remove the old order form",
            days=12,
            reporter=on_call,
            priority="Low",
            components=("checkout",),
            description="Nobody has used it since the spring.",
        )
        self._add_earlier_failure()
        bug = self._builder.add(
            self._store,
            "Bug",
            "Basket keeps articles that are sold out",
            days=6,
            reporter=engineer,
            assignee=author,
            status=IN_REVIEW,
            components=("cart",),
            labels=("customer-report",),
            description="cart does not ask inventory again when a basket is opened after a day.",
        )
        self._builder.comment(bug, author, 4, "The basket is checked when it is opened. Ready for review.")

    def _add_payments_work(self) -> None:
        on_call, engineer, _ = self._payments_people
        self._builder.add(
            self._payments,
            "Task",
            "Renew the certificate of the card processor",
            days=45,
            reporter=on_call,
            assignee=on_call,
            status=DONE,
            priority="High",
            components=("payments",),
            hours_of_work=30,
            description="It ends this quarter.",
        )
        self._builder.add(
            self._payments,
            "Story",
            "Export bookings of a month",
            days=18,
            reporter=on_call,
            assignee=engineer,
            status=IN_REVIEW,
            components=("ledger",),
            description="As CSV, for the auditors.",
        )
        self._builder.add(
            self._payments,
            "Bug",
            "Refunds above the daily limit fail without a message",
            days=9,
            reporter=engineer,
            components=("payments",),
            description="The answer has status 500.",
        )
        bug = self._builder.add(
            self._payments,
            "Bug",
            "Receipts of refunds are sent twice",
            days=3,
            reporter=on_call,
            assignee=engineer,
            priority="High",
            components=("payments",),
            labels=("customer-report",),
            description="payments and notifications both send one when a refund is partial.",
        )
        self._builder.comment(bug, on_call, 2.5, "Twelve customers so far. Nobody was charged twice.")

    def _add_late_mails(self) -> None:
        on_call, _, newcomer = self._platform_people
        self._builder.add(
            self._platform,
            "Bug",
            "Mails to customers are hours late",
            days=22,
            reporter=on_call,
            assignee=newcomer,
            status=DONE,
            components=("notifications",),
            labels=("incident",),
            hours_of_work=9,
            description="One message that could not be parsed blocked the queue.",
        )

    def _add_platform_work(self) -> None:
        on_call, engineer, _ = self._platform_people
        owner = find_demo_user(self._company)
        self._builder.add(
            self._platform,
            "Task",
            "Check manifests for settings that the code requires",
            days=11,
            reporter=engineer,
            labels=("settings", "ci"),
            description=(
                f"CI compares {_code('config/required-settings.txt')} with"
                f" {_code('deploy/deployment.yaml')} and fails when a setting is missing."
            ),
        )
        self._builder.add(
            self._platform,
            "Task",
            "Alert when a deployment is degraded for ten minutes",
            days=8,
            reporter=engineer,
            assignee=owner,
            priority="High",
            labels=("alerting",),
            description="PagerDuty opens incidents for crashing pods only.",
        )
        task = self._builder.add(
            self._platform,
            "Task",
            "Update the base image of inventory",
            days=5,
            reporter=on_call,
            assignee=owner,
            status=IN_PROGRESS,
            components=("inventory",),
            labels=("security",),
            description="The scanner reports two findings in the current one.",
        )
        self._builder.comment(
            task, engineer, 2, "The new image builds. It still has to run on staging for a day."
        )

    def _days_before_deployment(self, hours: float) -> float:
        """Days from that many hours before the failing deployment until now."""
        age = self._company.now - self._release.deployed_at + timedelta(hours=hours)
        return age / timedelta(days=1)


def _code(name: str) -> str:
    """A name in wiki markup, where a bare underscore makes text italic."""
    return f"{{{{{name}}}}}"
