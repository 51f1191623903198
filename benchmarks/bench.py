"""What the supervisor costs beside a plain proxy, measured in one run: `make bench`.

    python -m benchmarks.bench [--quick] [--growth] [--soak MINUTES] [--json FILE] [--set NAME=VALUE]

It starts the supervisor, a scripted model and the proxy on loopback and prints a table in Markdown. Read the
ratios: both were measured in the same minutes, and seconds depend on the machine. Every load is bounded.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.load.a2a_streams import LoadResult, Question, open_streams
from benchmarks.load.processes import Server, run_agent, run_model, run_proxy, run_supervisor

TOKENS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: of the proxy where it has one, of the supervisor, and what is to be reached."""

    name: str
    proxy: float | None
    ours: float
    unit: str
    target: str

    @property
    def ratio(self) -> float | None:
        if not self.proxy:
            return None
        return self.ours / self.proxy

    def as_markdown(self) -> str:
        proxy = "-" if self.proxy is None else f"{self.proxy:,.1f} {self.unit}"
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        return f"| {self.name} | {proxy} | {self.ours:,.1f} {self.unit} | {ratio} | {self.target} |"


def print_table(rows: list[Row]) -> None:
    print("| measure | plain proxy | supervisor | ratio | to reach |")
    print("|---|--:|--:|--:|--:|")
    for row in rows:
        print(row.as_markdown(), flush=True)


def load(server: Server, question: Question, streams: int) -> tuple[LoadResult, float]:
    """The result, and the CPU seconds of the server. Ends the benchmark when an answer is wrong."""
    before = server.cpu_seconds()
    result = asyncio.run(open_streams(server.port, [question] * streams))
    if result.failures:
        raise SystemExit(f"{len(result.failures)} of {streams} streams failed: {result.failures[0]}")
    return result, server.cpu_seconds() - before


def best(results: list[tuple[LoadResult, float]]) -> tuple[LoadResult, float]:
    """The run that was disturbed least by other programs."""
    return min(results, key=lambda pair: pair[1])


def measure_full_speed(proxy: Server, ours: Server, streams: int, rounds: int) -> list[Row]:
    question = Question(TOKENS)
    measured = []
    for server in (proxy, ours):
        load(server, question, min(streams, 10))  # caches and connections
        measured.append(best([load(server, question, streams) for _ in range(rounds)]))
    (proxy_result, proxy_cpu), (our_result, our_cpu) = measured
    tokens = streams * TOKENS
    return [
        Row(f"CPU per token, {streams} streams at full speed", 1e6 * proxy_cpu / tokens,
            1e6 * our_cpu / tokens, "µs", "1.0 times"),
        Row(f"tokens a second, {streams} streams", proxy_result.tokens_per_second,
            our_result.tokens_per_second, "/s", "1.0 times"),
        Row(f"first token, {streams} streams, median", proxy_result.first_token_ms(),
            our_result.first_token_ms(), "ms", "300 ms" if streams == 50 else ""),
    ]  # fmt: skip


def measure_one_stream(proxy: Server, ours: Server, repeats: int) -> list[Row]:
    """One short question after the other: the first token, and the CPU of a run apart from its tokens."""
    question = Question(2)
    first_token: list[float] = []
    cpu: list[float] = []
    for server in (proxy, ours):
        for _ in range(5):
            load(server, question, 1)
        before = server.cpu_seconds()
        results = [load(server, question, 1)[0] for _ in range(repeats)]
        cpu.append(1000 * (server.cpu_seconds() - before) / repeats)
        first_token.append(median(result.first_token_ms() for result in results))
    return [
        Row("first token, 1 stream, median", first_token[0], first_token[1], "ms", "12 ms"),
        Row("CPU of a run of two tokens", cpu[0], cpu[1], "ms", "8 ms"),
    ]


def measure_paced(proxy: Server, ours: Server) -> list[Row]:
    question = Question(100, rate=50)
    late = [load(server, question, 100)[0].lateness_ms(0.95) for server in (proxy, ours)]
    return [Row("100 streams at 50 tokens/s: lateness p95", late[0], late[1], "ms", "300 ms")]


def measure_stream_memory(proxy: Server, ours: Server, streams: int) -> Row:
    """The growth of the resident memory while so many streams are open, after as many were open before."""
    growth = [asyncio.run(_stream_memory(server, streams)) for server in (proxy, ours)]
    return Row(f"memory for each of {streams} streams", growth[0], growth[1], "KiB", "100 KiB")


async def _stream_memory(server: Server, streams: int) -> float:
    questions = [Question(60, rate=10)] * streams
    await open_streams(server.port, questions)
    before = server.resident_mib()
    running = asyncio.create_task(open_streams(server.port, questions))
    peak = before
    while not running.done():
        peak = max(peak, server.resident_mib())
        await asyncio.sleep(0.1)
    await running
    return max(0.0, peak - before) * 1024 / streams


def measure_starts(model_url: str, rounds: int) -> list[Row]:
    """The first start in an empty folder, later starts, and the first question against the second."""
    later: list[float] = []
    memory: list[float] = []
    first_question: list[float] = []
    second_question: list[float] = []
    with tempfile.TemporaryDirectory() as folder, run_proxy(model_url) as proxy:
        home = Path(folder)
        with run_supervisor(model_url, home=home) as server:
            time.sleep(2)
            first_memory = server.own_resident_mib()
            time.sleep(20)  # the shipped documentation is taken in
        for _ in range(rounds):
            with run_supervisor(model_url, home=home) as server:
                later.append(server.started)
                memory.append(server.own_resident_mib())
                first_question.append(load(server, Question(2), 1)[0].first_token_ms())
                second_question.append(load(server, Question(2), 1)[0].first_token_ms())
        return [
            Row("start to ready, median", proxy.started, median(later), "s", "1.2 s"),
            Row("memory when ready, first start", proxy.resident_mib(), first_memory, "MiB", "130 MiB"),
            Row("memory when ready, later starts", proxy.resident_mib(), median(memory), "MiB", "130 MiB"),
            Row("first token of the first question against the second", median(second_question),
                median(first_question), "ms", "1.0 times"),
        ]  # fmt: skip


def measure_delegation(model_url: str, repeats: int, settings: Mapping[str, str]) -> list[Row]:
    """A delegation to an agent without tools, in-process and as a service."""
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "echo.yaml").write_text("name: echo\ndescription: Echoes.\nprompt: Echo.\n")
        variables = {**settings, "AGENTS_CONFIG": str(folder), "ASK_ON_UNTRUSTED_CONTENT": "false"}
        service = stack.enter_context(run_agent("echo", model_url, variables))
        remote = {
            **variables,
            "DISTRIBUTED_AGENTS": "echo",
            "ECHO_AGENT_URL": f"http://127.0.0.1:{service.port}",
        }
        for name, placed in (("in-process", variables), ("remote", remote)):
            server = stack.enter_context(run_supervisor(model_url, placed))
            question = Question(5, delegate="echo", sub_tokens=20)
            for _ in range(3):
                load(server, question, 1)
            before = server.cpu_seconds()
            results = [load(server, question, 1)[0] for _ in range(repeats)]
            cpu = 1000 * (server.cpu_seconds() - before) / repeats
            rows.append(Row(f"a question with a delegation, {name}: CPU", None, cpu, "ms", ""))
            total = median(result.total_ms() for result in results)
            rows.append(Row(f"a question with a delegation, {name}: time", None, total, "ms", ""))
    return rows


def print_growth(model_url: str, variables: Mapping[str, str]) -> None:
    """How the cost grows: of tokens, of streams, and of conversations that are stored."""
    with run_supervisor(model_url, variables) as ours:
        load(ours, Question(TOKENS), 10)
        print("\n| tokens in one answer | CPU per token |\n|--:|--:|")
        for tokens in (100, 1_000, 10_000):
            _, cpu = load(ours, Question(tokens), 4)
            print(f"| {tokens:,} | {1e6 * cpu / tokens / 4:.0f} µs |", flush=True)
        print("\n| streams | CPU per token | first token, median |\n|--:|--:|--:|")
        for streams in (1, 10, 50, 100, 200, 400):
            result, cpu = load(ours, Question(TOKENS), streams)
            per_token = 1e6 * cpu / streams / TOKENS
            print(f"| {streams} | {per_token:.0f} µs | {result.first_token_ms():.0f} ms |", flush=True)
        print("\n| stored conversations | CPU of a run |\n|--:|--:|")
        stored = 0
        for conversations in (10, 100, 1_000, 10_000):
            cpu = 0.0
            while stored < conversations:
                batch = min(50, conversations - stored)
                _, cpu = load(ours, Question(2), batch)
                stored += batch
            print(f"| {conversations:,} | {1000 * cpu / batch:.1f} ms |", flush=True)


def soak(model_url: str, minutes: float, variables: Mapping[str, str]) -> None:
    """Conversations without a pause: memory, descriptors and processes must not grow."""
    with run_supervisor(model_url, variables) as ours:
        print("\n| minute | runs | memory | descriptors | processes |\n|--:|--:|--:|--:|--:|")
        end = time.monotonic() + 60 * minutes
        runs = 0
        minute = 0
        while time.monotonic() < end:
            load(ours, Question(50), 20)
            runs += 20
            elapsed = int(minutes - (end - time.monotonic()) / 60)
            if elapsed > minute:
                minute = elapsed
                memory = ours.resident_mib()
                counts = f"{ours.descriptor_count()} | {ours.process_count()}"
                print(f"| {minute} | {runs:,} | {memory:.0f} MiB | {counts} |", flush=True)


def print_event_growth(model_url: str, variables: Mapping[str, str]) -> None:
    """How the cost of an event grows with the events of its run: every token is stored by itself."""
    with run_supervisor(model_url, {**variables, "STREAM_COALESCE_SECONDS": "0"}) as ours:
        load(ours, Question(TOKENS), 10)
        print("\n| frames of one run | CPU per frame |\n|--:|--:|")
        for tokens in (10, 100, 1_000, 10_000):
            result, cpu = load(ours, Question(tokens, rate=500), 2)
            frames = sum(stream.frames for stream in result.streams)
            print(f"| {frames // 2:,} | {1e6 * cpu / frames:.0f} µs |", flush=True)


@contextmanager
def run_both(model_url: str, variables: Mapping[str, str]) -> Iterator[tuple[Server, Server]]:
    with run_proxy(model_url) as proxy, run_supervisor(model_url, variables) as ours:
        time.sleep(3)  # what is imported after the start
        yield proxy, ours


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no starts and no delegation")
    parser.add_argument("--growth", action="store_true", help="how the cost grows, too")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows as JSON, too")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the supervisor")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    variables = dict(setting.split("=", 1) for setting in options.set)
    rounds = 1 if options.quick else 3
    with run_model() as model_url:
        with run_both(model_url, variables) as (proxy, ours):
            rows = measure_one_stream(proxy, ours, 10 * rounds)
            for streams in (50,) if options.quick else (1, 10, 50, 100, 200):
                rows += measure_full_speed(proxy, ours, streams, rounds)
            rows += measure_paced(proxy, ours)
            rows.append(measure_stream_memory(proxy, ours, 200))
        if not options.quick:
            with run_both(model_url, {**variables, "DATABASE_URL": "memory://"}) as (proxy, in_memory):
                in_memory_row = measure_full_speed(proxy, in_memory, 50, rounds)[0]
                rows.append(Row(f"{in_memory_row.name}, nothing stored", in_memory_row.proxy,
                                in_memory_row.ours, "µs", ""))  # fmt: skip
            rows += measure_starts(model_url, rounds)
            rows += measure_delegation(model_url, 10, variables)
        print_table(rows)
        if options.json:
            options.json.write_text(
                json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1)
            )
        if options.growth:
            print_growth(model_url, variables)
            print_event_growth(model_url, variables)
        if options.soak:
            soak(model_url, options.soak, variables)


if __name__ == "__main__":
    main()
