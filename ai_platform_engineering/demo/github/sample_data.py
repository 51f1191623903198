"""The organisation that the stand-in begins with: three repositories with a history, open work, and builds that failed."""

from datetime import datetime, timedelta

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.state import (
    Account,
    Annotation,
    Comment,
    Commit,
    GitHubRepository,
    GitHubState,
    Issue,
    JobStep,
    PullRequest,
    Release,
    Review,
    WorkflowJob,
    WorkflowRun,
    now,
)

ORGANISATION = "octo-org"
BOT = "platform-bot"
DEV_ONE, DEV_TWO = "dev-one", "dev-two"
USERS = (BOT, DEV_ONE, DEV_TWO)

_PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # how a picture begins: enough to be no text
_WORKFLOW = b"""name: CI
on: [push, pull_request]
jobs:
  lint:
    runs-on: ubuntu-latest
    steps: [{uses: actions/checkout@v4}, {run: make lint}]
  test:
    runs-on: ubuntu-latest
    steps: [{uses: actions/checkout@v4}, {run: make test}]
"""
_CHECKOUT = b"""export async function checkout(basket, pay) {
  return await pay(basket.total, { timeout: 3000 });
}
"""


def build_sample_state() -> GitHubState:
    """A fresh state; its times are counted back from now."""
    state = GitHubState()
    members = list(USERS)
    state.accounts[ORGANISATION] = Account(
        id=state.next_id(), login=ORGANISATION, type="Organization", members=members
    )
    for login in USERS:
        state.accounts[login] = Account(id=state.next_id(), login=login)
    start = now()
    for build in (_web, _payments, _infra):
        found = build(_Builder(state, start))
        state.repositories[found.full_name] = found
    return state


class _Builder:
    """Fills one repository; moments are given in hours before now."""

    def __init__(self, state: GitHubState, start: datetime) -> None:
        self._state, self._start = state, start

    def ago(self, hours: float) -> datetime:
        return self._start - timedelta(hours=hours)

    def repository(
        self, name: str, description: str, *, private: bool, language: str, topics: list[str]
    ) -> GitHubRepository:
        made = self.ago(4000)
        return GitHubRepository(
            id=self._state.next_id(),
            owner=ORGANISATION,
            name=name,
            description=description,
            private=private,
            language=language,
            topics=topics,
            created_at=made,
            pushed_at=made,
        )

    def commit(
        self,
        into: GitHubRepository,
        branch: str,
        author: str,
        hours: float,
        message: str,
        files: dict[str, bytes],
    ) -> Commit:
        return history.commit_files(into, branch, message, author, self.ago(hours), files)

    def issue(
        self,
        into: GitHubRepository,
        title: str,
        author: str,
        hours: float,
        body: str,
        *labels: str,
        assignees: tuple[str, ...] = (),
    ) -> Issue:
        made = Issue(
            id=self._state.next_id(),
            number=len(into.issues) + 1,
            title=title,
            body=body,
            author=author,
            created_at=self.ago(hours),
            updated_at=self.ago(hours),
            labels=list(labels),
            assignees=list(assignees),
        )
        into.issues[made.number] = made
        return made

    def comment(self, on: Issue, author: str, hours: float, body: str) -> None:
        on.comments.append(
            Comment(id=self._state.next_id(), author=author, body=body, created_at=self.ago(hours))
        )
        on.updated_at = self.ago(hours)

    def close(self, one: Issue, hours: float) -> None:
        one.state = "closed"
        one.state_reason = "completed"
        one.closed_at = self.ago(hours)
        one.updated_at = self.ago(hours)

    def pull(
        self,
        into: GitHubRepository,
        title: str,
        author: str,
        hours: float,
        head: str,
        body: str,
        *reviewers: str,
    ) -> tuple[Issue, PullRequest]:
        made = self.issue(into, title, author, hours, body)
        made.pull = PullRequest(
            head=head, base=into.default_branch, head_sha=into.branches[head], reviewers=list(reviewers)
        )
        return made, made.pull

    def review(self, author: str, hours: float, body: str, *, approves: bool) -> Review:
        state = "APPROVED" if approves else "CHANGES_REQUESTED"
        return Review.model_validate(
            {
                "id": self._state.next_id(),
                "author": author,
                "state": state,
                "body": body,
                "submitted_at": self.ago(hours),
            }
        )

    def release(self, into: GitHubRepository, tag: str, of: Commit, hours: float, body: str) -> None:
        into.releases.append(
            Release(
                id=self._state.next_id(),
                tag=tag,
                sha=of.sha,
                name=tag,
                body=body,
                author=of.author,
                published_at=self.ago(hours),
            )
        )

    def job(
        self, name: str, *steps: str, failed: str | None = None, annotations: tuple[Annotation, ...] = ()
    ) -> WorkflowJob:
        """A job that passed, or failed at a step: what comes after is skipped."""
        done = list(steps).index(failed) if failed else len(steps)
        results = [
            JobStep(name=step, conclusion="success" if at < done else "failure" if at == done else "skipped")
            for at, step in enumerate(steps)
        ]
        result = "failure" if failed else "success"
        return WorkflowJob(
            id=self._state.next_id(),
            name=name,
            conclusion=result,
            steps=results,
            annotations=list(annotations),
        )

    def run(
        self,
        into: GitHubRepository,
        name: str,
        of: Commit,
        branch: str,
        hours: float,
        *jobs: WorkflowJob,
        event: str = "push",
    ) -> None:
        failed = any(job.conclusion == "failure" for job in jobs)
        into.runs.append(
            WorkflowRun(
                id=self._state.next_id(),
                number=len(into.runs) + 1,
                name=name,
                title=of.message.splitlines()[0],
                event=event,
                branch=branch,
                sha=of.sha,
                actor=of.author,
                created_at=self.ago(hours),
                updated_at=self.ago(hours - 0.1),
                conclusion="failure" if failed else "success",
                jobs=list(jobs),
            )
        )


_SETUP = ("Set up job", "Check out")


def _web(build: _Builder) -> GitHubRepository:
    web = build.repository(
        "web",
        "The web shop: storefront and checkout",
        private=False,
        language="TypeScript",
        topics=["shop", "frontend"],
    )
    web.former_names = [f"{ORGANISATION}/webshop"]
    first = {
        "README.md": b"# web\n\nThe storefront. `make run` starts it on port 3000.\n",
        "package.json": b'{"name": "web", "version": "1.4.0"}\n',
    }
    build.commit(web, "main", DEV_ONE, 900, "Begin the storefront", first | {"assets/logo.png": _PICTURE})
    checkout = build.commit(
        web,
        "main",
        DEV_TWO,
        400,
        "Add checkout",
        {"src/checkout.ts": _CHECKOUT, ".github/workflows/ci.yaml": _WORKFLOW},
    )
    good = build.commit(
        web, "main", DEV_ONE, 60, "Show delivery dates", {"src/delivery.ts": b"export const days = 3;\n"}
    )
    web.branches["feature/dark-mode"] = web.branches["fix/checkout-timeout"] = good.sha
    dark = build.commit(
        web,
        "feature/dark-mode",
        DEV_ONE,
        30,
        "Add dark mode",
        {"src/theme.ts": b'export const theme = "dark";\n'},
    )
    fixed = _CHECKOUT.replace(b"3000", b"30000")
    slow = build.commit(
        web, "fix/checkout-timeout", DEV_TWO, 20, "Give large baskets more time", {"src/checkout.ts": fixed}
    )
    bad = build.commit(
        web,
        "main",
        DEV_TWO,
        5,
        "Count delivery days from the order",
        {"src/delivery.ts": b"export const days = order.days;\n"},
    )
    _web_work(build, web)
    build.release(web, "v1.3.0", checkout, 390, "Checkout.")
    build.release(web, "v1.4.0", good, 58, "Delivery dates are shown.")
    lint, unit = (*_SETUP, "make lint"), (*_SETUP, "make test", "Upload report")
    why = Annotation(path="src/delivery.ts", line=1, message="ReferenceError: order is not defined")
    build.run(web, "CI", good, "main", 59, build.job("lint", *lint), build.job("test", *unit))
    build.run(
        web,
        "CI",
        dark,
        "feature/dark-mode",
        29,
        build.job("lint", *lint),
        build.job("test", *unit),
        event="pull_request",
    )
    late = Annotation(path="src/checkout.ts", line=2, message="The timeout 30000 is above the allowed 10000")
    jobs = build.job("lint", *lint, failed="make lint", annotations=(late,)), build.job("test", *unit)
    build.run(web, "CI", slow, "fix/checkout-timeout", 19, *jobs, event="pull_request")
    build.run(
        web,
        "CI",
        bad,
        "main",
        4.8,
        build.job("lint", *lint),
        build.job("test", *unit, failed="make test", annotations=(why,)),
    )
    return web


def _web_work(build: _Builder, web: GitHubRepository) -> None:
    late = build.issue(
        web,
        "Checkout times out for large baskets",
        DEV_ONE,
        100,
        "With more than 50 items the payment is given up.",
        "bug",
        "checkout",
    )
    late.assignees = [DEV_TWO]
    build.comment(late, DEV_TWO, 90, "It is the timeout of three seconds in `checkout.ts`.")
    build.comment(late, DEV_ONE, 80, "Please keep it below ten seconds.")
    build.issue(web, "Dark mode", DEV_TWO, 300, "Asked for by many.", "enhancement", assignees=(DEV_ONE,))
    build.close(build.issue(web, "Update the dependencies", BOT, 500, "Monthly update.", "maintenance"), 450)
    _, dark = build.pull(web, "Add dark mode", DEV_ONE, 29, "feature/dark-mode", "Closes #2.")
    dark.reviews = [build.review(DEV_TWO, 25, "Looks good.", approves=True)]
    _, slow = build.pull(
        web, "Give large baskets more time", DEV_TWO, 19, "fix/checkout-timeout", "For #1.", BOT
    )
    slow.reviews = [build.review(DEV_ONE, 10, "Below ten seconds, please.", approves=False)]
    build.issue(
        web, "Delivery date is missing on the order page", DEV_TWO, 3, "Since the last change on main.", "bug"
    )


def _payments(build: _Builder) -> GitHubRepository:
    payments = build.repository(
        "payments",
        "Payments service: charges, refunds and receipts",
        private=True,
        language="Python",
        topics=["service"],
    )
    first = {
        "README.md": b"# payments\n\nCharges and refunds.\n",
        "payments/refund.py": b"LIMIT = 500\n",
        ".github/workflows/ci.yaml": _WORKFLOW,
    }
    build.commit(payments, "main", DEV_TWO, 800, "Begin the service", first)
    last = build.commit(
        payments, "main", DEV_ONE, 48, "Raise the limit of refunds", {"payments/refund.py": b"LIMIT = 1000\n"}
    )
    payments.branches["release/2.1"] = last.sha
    build.issue(
        payments,
        "Refunds above the limit fail without a message",
        DEV_ONE,
        70,
        "The caller sees only status 500.",
        "bug",
        assignees=(DEV_TWO,),
    )
    build.issue(payments, "Rotate the signing key", BOT, 24, "Due this quarter.", "security")
    build.run(
        payments,
        "CI",
        last,
        "main",
        47,
        build.job("lint", *_SETUP, "make lint"),
        build.job("test", *_SETUP, "make test"),
    )
    build.release(payments, "v2.1.0", last, 46, "Refunds up to 1000.")
    return payments


def _infra(build: _Builder) -> GitHubRepository:
    infra = build.repository(
        "infra", "Clusters, networks and DNS as code", private=True, language="HCL", topics=["terraform"]
    )
    first = {
        "README.md": b"# infra\n\nOne folder per environment.\n",
        "staging/main.tf": b"replicas = 2\n",
        "production/main.tf": b"replicas = 4\n",
    }
    build.commit(infra, "main", BOT, 700, "Begin with two environments", first)
    last = build.commit(
        infra, "main", BOT, 12, "Six replicas in production", {"production/main.tf": b"replicas = 6\n"}
    )
    build.issue(
        infra,
        "Node pool of production is full",
        BOT,
        11,
        "The apply of the last change failed: quota exceeded.",
        "incident",
    )
    steps = (*_SETUP, "terraform plan", "terraform apply")
    why = Annotation(
        path="production/main.tf",
        line=1,
        message="Quota exceeded: CPUS in europe-west1, limit 96, requested 104",
    )
    jobs = (
        build.job("staging", *steps),
        build.job("production", *steps, failed="terraform apply", annotations=(why,)),
    )
    build.run(infra, "Deploy", last, "main", 11.8, *jobs)
    return infra
