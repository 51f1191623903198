"""What holds for every test: no network beyond this machine, no settings from outside, a folder of its
own."""

import gc
import os
import shlex
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import network_guard
from tests.support.command_process import ADDRESS_VARIABLE, forked_python
from tests.support.examples import scale_examples
from tests.support.needs import need as need  # tests import it from here
from tests.support.pairwise import mark_beyond_sample, mark_redundant_combinations

ROOT = Path(__file__).resolve().parent.parent
GUARD_FOLDER = ROOT / "tests" / "support" / "guard"

# Ours, the model providers', and whatever steers HTTP clients and tracing: a test that needs one sets it.
PREFIXES_TO_REMOVE = (
    "A2A_",
    "AGENT_",
    "AGENTS_",
    "ANTHROPIC_",
    "ARGOCD_",
    "ATLASSIAN_",
    "AWS_",
    "AZURE_",
    "BACKSTAGE_",
    "BEDROCK_",
    "CAIPE_",
    "CONFLUENCE_",
    "DISTRIBUTED_",
    "EMBEDDINGS_",
    "ENABLE_",
    "FETCH_DOCUMENT_",
    "GCP_",
    "GEMINI_",
    "GITHUB_",
    "GITLAB_",
    "GOOGLE_",
    "GROQ_",
    "JIRA_",
    "KOMODOR_",
    "KUBE",
    "LANGCHAIN_",
    "LANGFUSE_",
    "LANGGRAPH_",
    "LANGSMITH_",
    "LLM_",
    "MCP_",
    "MODEL_",
    "MONGODB_",
    "OPENAI_",
    "OTEL_",
    "PAGERDUTY_",
    "PROMPT_",
    "PLACEMENT_",
    "RAG_",
    "REDIS_",
    "REMEMBER_",
    "RETENTION_",
    "RUN_",
    "SEARCH_",
    "SHUTDOWN_",
    "SKILL_",
    "SKILLS_",
    "SKIP_",
    "SLACK_",
    "SPLUNK_",
    "SSL_CERT_",
    "STORAGE_",
    "STREAM_",
    "SUBAGENT_",
    "SUPERVISOR_",
    "THIRD_PARTY_",
    "TOOL_",
    "VERTEXAI_",
    "VICTOROPS_",
    "WEBEX_",
    "X_VO_",
)
SUFFIXES_TO_REMOVE = ("_API_KEY", "_CA_BUNDLE", "_PROXY", "_TOKEN")
NAMES_TO_REMOVE = frozenset(
    {
        "AWS_PROFILE",
        "AWS_REGION",
        "DATABASE_URL",
        "EXTERNAL_URL",
        "LOG_LEVEL",
        "MAX_CONTEXT_TOKENS",
        "POSTGRES_DSN",
        "READ_ONLY",
        "REQUEST_TIMEOUT_SECONDS",
        "TASK_CONFIG_PATH",
        "USE_STRUCTURED_RESPONSE",
        "WHEN_BUSY",
        "WORKFLOWS_CONFIG",
    }
)
KEPT_NAMES = frozenset({network_guard.GUARD_FILE, ADDRESS_VARIABLE})

# Time limits per example measure the machine, not the property. Based on the profile that hypothesis has
# chosen: it has one of its own for CI.
hypothesis.settings.register_profile(
    "scaled", hypothesis.settings(), deadline=None, max_examples=scale_examples(100)
)
hypothesis.settings.load_profile("scaled")

# A long module that begins last keeps one worker busy while the others wait.
SLOW_MODULES = (
    "tests/demo/test_estate_servers.py",
    "tests/a2a/test_third_party_peers.py",
    "tests/test_distributed_mode_binding.py",
    "tests/integrations/slack_bot/test_resilience.py",
    "tests/graph/test_citations.py",
    "tests/cli/test_kb.py",
    "tests/workflows/test_workflows_end_to_end.py",
    "tests/cli/test_broken_storage.py",
    "tests/integrations/slack_bot/test_long_approvals.py",
    "tests/multi_agents/test_crash_recovery.py",
    "tests/web/test_view_accessibility.py",
    "tests/web/test_restart.py",
    "tests/terminal/test_chat.py",
    "tests/multi_agents/test_delegation_memory.py",
    "tests/cli/test_serve.py",
    "tests/a2a/test_third_party_agents.py",
    "tests/multi_agents/test_placement_equivalence.py",
    "tests/knowledge_bases/stores/test_store.py",
    "tests/multi_agents/middleware/test_context_window.py",
    "tests/integrations/slack_bot/test_stopping.py",
    "tests/files/test_hostile_yaml.py",
    "tests/graph/test_plan_tracker.py",
    "tests/workflows/test_workflows_configured.py",
    "tests/multi_agents/test_reload.py",
    "tests/project/test_compose.py",
    "tests/project/test_image.py",
    "integration/test_streaming_harness.py",
)


def remove_outside_settings(environ: MutableMapping[str, str]) -> None:
    for name in list(environ):
        upper = name.upper()  # proxies are read in both cases
        if name not in KEPT_NAMES and (
            upper.startswith(PREFIXES_TO_REMOVE)
            or upper.endswith(SUFFIXES_TO_REMOVE)
            or upper in NAMES_TO_REMOVE
        ):
            del environ[name]


def use_default_interrupt() -> None:
    """Children can be interrupted, also when the tests run in the background of a shell.

    Such a job ignores SIGINT, and its children inherit that; a signal with a handler is the default in them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def take_violations() -> list[str]:
    """The refused attempts since the last call, of this process and of those it started."""
    path = Path(os.environ[network_guard.GUARD_FILE])
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines:
        path.write_text("", encoding="utf-8")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    # Here and not in a fixture, so that imports and session fixtures are covered; each xdist worker gets its
    # own file.
    handle, path = tempfile.mkstemp(prefix="caipe-guard-")
    os.close(handle)
    config.add_cleanup(lambda: Path(path).unlink(missing_ok=True))
    remove_outside_settings(os.environ)
    os.environ[network_guard.GUARD_FILE] = path
    others = [
        entry
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry and entry != str(GUARD_FOLDER)
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(GUARD_FOLDER), *others])
    network_guard.install()
    use_default_interrupt()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """The workers are forked from the command server: they share its imports, and each other's server."""
    for spec in specs:
        spec.python = shlex.join(forked_python())


def refuse_same_ids(items: list[pytest.Item]) -> None:
    """Of two tests with one id, the scheduler of the workers runs one, and says nothing."""
    counts = Counter(item.nodeid for item in items)
    if repeated := [nodeid for nodeid, count in counts.items() if count > 1]:
        raise pytest.UsageError(f"more than one test is called {', '.join(repeated)}")


@pytest.hookimpl(tryfirst=True)  # before those that are marked `full` are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The modules that take the longest come first."""
    refuse_same_ids(items)
    mark_redundant_combinations(items)
    mark_beyond_sample(items)

    def rank(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        return SLOW_MODULES.index(module) if module in SLOW_MODULES else len(SLOW_MODULES)

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """What was imported stays until the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Garbage reports its errors now: pytest would look for more five times, among all that was imported."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if attempts := take_violations():
        text = "network guard, in the " + report.when + " of this test:\n  " + "\n  ".join(attempts)
        report.longrepr = f"{report.longreprtext}\n{text}" if report.failed else text
        report.outcome = "failed"
    return report


@pytest.fixture(autouse=True)
def _isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of ours or of a provider, no `.env` in reach, and what the test sets is gone afterwards."""
    saved = dict(os.environ)
    remove_outside_settings(os.environ)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIPE_HOME", str(tmp_path / "caipe-home"))
    # As in an activated environment: hints name `caipe`, and not the path of a script.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    yield
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture
def guarded_environment() -> dict[str, str]:
    """An environment for a process with settings of its own: the guard, and just enough to start Python."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", network_guard.GUARD_FILE)
    return {name: os.environ[name] for name in kept if name in os.environ}
