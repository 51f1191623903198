"""Sample data of the stand-in: an organisation with three repositories, open issues and failed builds."""

from ai_platform_engineering.demo.github.repository_builder import RepositoryBuilder
from ai_platform_engineering.demo.github.state import Account, Annotation, GitHubRepository, GitHubState, now

ORGANISATION = "octo-org"
BOT = "platform-bot"
DEV_ONE, DEV_TWO = "dev-one", "dev-two"
USERS = (BOT, DEV_ONE, DEV_TWO)

_PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # the beginning of a picture: not UTF-8
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
    """Builds a fresh state; its times are counted back from now."""
    state = GitHubState()
    members = list(USERS)
    state.accounts[ORGANISATION] = Account(
        id=state.next_id(), login=ORGANISATION, type="Organization", members=members
    )
    for login in USERS:
        state.accounts[login] = Account(id=state.next_id(), login=login)
    start = now()
    for build in (_build_web, _build_payments, _build_infra):
        repository = build(RepositoryBuilder(state, ORGANISATION, start))
        state.repositories[repository.full_name] = repository
    return state


_SETUP = ("Set up job", "Check out")


def _build_web(builder: RepositoryBuilder) -> GitHubRepository:
    web = builder.repository(
        "web",
        "The web shop: storefront and checkout",
        private=False,
        language="TypeScript",
        topics=["shop", "frontend"],
    )
    web.former_names = [f"{ORGANISATION}/webshop"]
    first_files = {
        "README.md": b"# web\n\nThe storefront. `make run` starts it on port 3000.\n",
        "package.json": b'{"name": "web", "version": "1.4.0"}\n',
    }
    builder.commit(
        web, "main", DEV_ONE, 900, "Begin the storefront", first_files | {"assets/logo.png": _PICTURE}
    )
    checkout_commit = builder.commit(
        web,
        "main",
        DEV_TWO,
        400,
        "Add checkout",
        {"src/checkout.ts": _CHECKOUT, ".github/workflows/ci.yaml": _WORKFLOW},
    )
    green_commit = builder.commit(
        web, "main", DEV_ONE, 60, "Show delivery dates", {"src/delivery.ts": b"export const days = 3;\n"}
    )
    web.branches["feature/dark-mode"] = green_commit.sha
    web.branches["fix/checkout-timeout"] = green_commit.sha
    dark_mode_commit = builder.commit(
        web,
        "feature/dark-mode",
        DEV_ONE,
        30,
        "Add dark mode",
        {"src/theme.ts": b'export const theme = "dark";\n'},
    )
    longer_timeout = _CHECKOUT.replace(b"3000", b"30000")
    timeout_commit = builder.commit(
        web,
        "fix/checkout-timeout",
        DEV_TWO,
        20,
        "Give large baskets more time",
        {"src/checkout.ts": longer_timeout},
    )
    broken_commit = builder.commit(
        web,
        "main",
        DEV_TWO,
        5,
        "Count delivery days from the order",
        {"src/delivery.ts": b"export const days = order.days;\n"},
    )
    _add_web_issues(builder, web)
    builder.release(web, "v1.3.0", checkout_commit, 390, "Checkout.")
    builder.release(web, "v1.4.0", green_commit, 58, "Delivery dates are shown.")
    lint_steps = (*_SETUP, "make lint")
    test_steps = (*_SETUP, "make test", "Upload report")
    failure = Annotation(path="src/delivery.ts", line=1, message="ReferenceError: order is not defined")
    builder.run(
        web,
        "CI",
        green_commit,
        "main",
        59,
        builder.job("lint", *lint_steps),
        builder.job("test", *test_steps),
    )
    builder.run(
        web,
        "CI",
        dark_mode_commit,
        "feature/dark-mode",
        29,
        builder.job("lint", *lint_steps),
        builder.job("test", *test_steps),
        event="pull_request",
    )
    lint_failure = Annotation(
        path="src/checkout.ts", line=2, message="The timeout 30000 is above the allowed 10000"
    )
    jobs = (
        builder.job("lint", *lint_steps, failed="make lint", annotations=(lint_failure,)),
        builder.job("test", *test_steps),
    )
    builder.run(web, "CI", timeout_commit, "fix/checkout-timeout", 19, *jobs, event="pull_request")
    builder.run(
        web,
        "CI",
        broken_commit,
        "main",
        4.8,
        builder.job("lint", *lint_steps),
        builder.job("test", *test_steps, failed="make test", annotations=(failure,)),
    )
    return web


def _add_web_issues(builder: RepositoryBuilder, web: GitHubRepository) -> None:
    timeout_issue = builder.issue(
        web,
        "Checkout times out for large baskets",
        DEV_ONE,
        100,
        "With more than 50 items the payment is given up.",
        "bug",
        "checkout",
    )
    timeout_issue.assignees = [DEV_TWO]
    builder.comment(timeout_issue, DEV_TWO, 90, "It is the timeout of three seconds in `checkout.ts`.")
    builder.comment(timeout_issue, DEV_ONE, 80, "Please keep it below ten seconds.")
    builder.issue(web, "Dark mode", DEV_TWO, 300, "Asked for by many.", "enhancement", assignees=(DEV_ONE,))
    builder.close(
        builder.issue(web, "Update the dependencies", BOT, 500, "Monthly update.", "maintenance"), 450
    )
    _, dark_mode_pull = builder.pull(web, "Add dark mode", DEV_ONE, 29, "feature/dark-mode", "Closes #2.")
    dark_mode_pull.reviews = [builder.review(DEV_TWO, 25, "Looks good.", approves=True)]
    _, timeout_pull = builder.pull(
        web, "Give large baskets more time", DEV_TWO, 19, "fix/checkout-timeout", "For #1.", BOT
    )
    timeout_pull.reviews = [builder.review(DEV_ONE, 10, "Below ten seconds, please.", approves=False)]
    builder.issue(
        web, "Delivery date is missing on the order page", DEV_TWO, 3, "Since the last change on main.", "bug"
    )


def _build_payments(builder: RepositoryBuilder) -> GitHubRepository:
    payments = builder.repository(
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
    builder.commit(payments, "main", DEV_TWO, 800, "Begin the service", first)
    last = builder.commit(
        payments, "main", DEV_ONE, 48, "Raise the limit of refunds", {"payments/refund.py": b"LIMIT = 1000\n"}
    )
    payments.branches["release/2.1"] = last.sha
    builder.issue(
        payments,
        "Refunds above the limit fail without a message",
        DEV_ONE,
        70,
        "The caller sees only status 500.",
        "bug",
        assignees=(DEV_TWO,),
    )
    builder.issue(payments, "Rotate the signing key", BOT, 24, "Due this quarter.", "security")
    builder.run(
        payments,
        "CI",
        last,
        "main",
        47,
        builder.job("lint", *_SETUP, "make lint"),
        builder.job("test", *_SETUP, "make test"),
    )
    builder.release(payments, "v2.1.0", last, 46, "Refunds up to 1000.")
    return payments


def _build_infra(builder: RepositoryBuilder) -> GitHubRepository:
    infra = builder.repository(
        "infra", "Clusters, networks and DNS as code", private=True, language="HCL", topics=["terraform"]
    )
    first = {
        "README.md": b"# infra\n\nOne folder per environment.\n",
        "staging/main.tf": b"replicas = 2\n",
        "production/main.tf": b"replicas = 4\n",
    }
    builder.commit(infra, "main", BOT, 700, "Begin with two environments", first)
    last = builder.commit(
        infra, "main", BOT, 12, "Six replicas in production", {"production/main.tf": b"replicas = 6\n"}
    )
    builder.issue(
        infra,
        "Node pool of production is full",
        BOT,
        11,
        "The apply of the last change failed: quota exceeded.",
        "incident",
    )
    steps = (*_SETUP, "terraform plan", "terraform apply")
    failure = Annotation(
        path="production/main.tf",
        line=1,
        message="Quota exceeded: CPUS in europe-west1, limit 96, requested 104",
    )
    jobs = (
        builder.job("staging", *steps),
        builder.job("production", *steps, failed="terraform apply", annotations=(failure,)),
    )
    builder.run(infra, "Deploy", last, "main", 11.8, *jobs)
    return infra
