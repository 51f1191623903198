"""The run that a graph works for, in the graph's configuration and in stored checkpoints."""

from ai_platform_engineering.core.run_context import RunContext

CONTEXT = RunContext(
    run_id="run",
    epoch=2,
    owner="ann",
    principal="bob",
    deadline=5.0,
    thread_id="thread",
    checkpoint_ns="tools:1",
    delegation_call="a/b",
)


def test_the_keys_are_those_of_stored_checkpoints() -> None:
    assert CONTEXT.to_metadata() == {
        "query_id": "run",
        "epoch": 2,
        "owner": "ann",
        "principal": "bob",
        "call": "a/b",
    }
    assert CONTEXT.to_configurable() == {"thread_id": "thread", "checkpoint_ns": "tools:1", "deadline": 5.0}


def test_a_configuration_carries_the_whole_context() -> None:
    config = {"metadata": CONTEXT.to_metadata(), "configurable": CONTEXT.to_configurable()}
    assert RunContext.from_config(config) == CONTEXT
    stored = RunContext.from_checkpoint_metadata(CONTEXT.to_metadata())
    assert (stored.run_id, stored.delegation_call, stored.thread_id) == ("run", "a/b", None)


def test_what_is_not_set_is_left_to_the_outer_graph() -> None:
    assert RunContext(deadline=5.0).to_metadata() == {}
    assert RunContext(delegation_call="a").to_configurable() == {}
    assert RunContext(thread_id="t", checkpoint_ns="").to_configurable() == {
        "thread_id": "t",
        "checkpoint_ns": "",
    }


def test_outside_of_a_run_there_is_no_context() -> None:
    assert RunContext.from_config({}) == RunContext()
    assert RunContext.from_config({"metadata": None, "configurable": None}) == RunContext()
    foreign = {"metadata": {"query_id": 7, "epoch": "first", "principal": ["ann"]}}
    assert RunContext.from_config(foreign) == RunContext()


def test_an_anonymous_principal_is_not_nobody() -> None:
    context = RunContext(principal="")
    assert RunContext.from_config({"metadata": context.to_metadata()}).principal == ""
