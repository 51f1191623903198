"""`make metrics`: density and vague names of the code, compared with starlette and a2a.

.venv/bin/python -m benchmarks.code_metrics
.venv/bin/python -m benchmarks.code_metrics --by-package
"""

import argparse
import ast
import importlib.util
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = ROOT / "ai_platform_engineering"
ANCHORS = ("starlette", "a2a")
GENERATED = ("_pb2.py", "_pb2_grpc.py")  # protobuf's output is nobody's style
VAGUE = frozenset(
    "found one given said known told kept taken asked wanted shown held left whole things"
    " gone seen made meant".split()
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True)
class Metrics:
    """Counts over a set of files; rates are per 1,000 lines."""

    files: int = 0
    lines: int = 0
    characters: int = 0
    conditional_expressions: int = 0
    nested_conditionals: int = 0
    comprehensions: int = 0
    dense_comprehensions: int = 0
    wide_assignments: int = 0
    vague_locals: int = 0
    function_lines: list[int] = field(default_factory=list)
    file_lines: list[int] = field(default_factory=list)

    def rate(self, count: int) -> float:
        return 1000 * count / max(self.lines, 1)


def is_wide_assignment(node: ast.AST) -> bool:
    """Three or more names set from a tuple of as many unrelated values."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) and len(target.elts) >= 3 for target in node.targets)


def is_dense(comprehension: ast.AST) -> bool:
    """Whether a comprehension has two loops, two conditions, or a condition or comprehension inside."""
    generators: list[ast.comprehension] = getattr(comprehension, "generators", [])
    if len(generators) > 1:
        return True
    if any(len(generator.ifs) > 1 for generator in generators):
        return True
    inner = [node for node in ast.walk(comprehension) if node is not comprehension]
    return any(isinstance(node, (ast.IfExp, *COMPREHENSIONS)) for node in inner)


def measure(paths: Iterator[Path]) -> Metrics:
    metrics = Metrics()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        metrics.files += 1
        metrics.lines += len(lines)
        metrics.characters += len(text)
        metrics.file_lines.append(len(lines))
        for node in ast.walk(ast.parse(text)):
            count_node(metrics, node)
    return metrics


def count_node(metrics: Metrics, node: ast.AST) -> None:
    if isinstance(node, ast.IfExp):
        metrics.conditional_expressions += 1
        if any(isinstance(child, ast.IfExp) for child in ast.iter_child_nodes(node)):
            metrics.nested_conditionals += 1
    elif isinstance(node, COMPREHENSIONS):
        metrics.comprehensions += 1
        if is_dense(node):
            metrics.dense_comprehensions += 1
    elif isinstance(node, FUNCTIONS) and node.end_lineno is not None:
        metrics.function_lines.append(node.end_lineno - node.lineno + 1)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
        metrics.vague_locals += 1
    elif is_wide_assignment(node):
        metrics.wide_assignments += 1


def sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        if "__pycache__" not in path.parts and not path.name.endswith(GENERATED):
            yield path


def installed(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed here: run make setup first.")
    return Path(spec.origin).parent


def spread(values: list[int]) -> str:
    """Median, 95th percentile and longest."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.0f}/{ordered[int(len(ordered) * 0.95) - 1]}/{ordered[-1]}"


def print_table(columns: dict[str, Metrics]) -> None:
    rows: list[tuple[str, list[str]]] = [
        ("files", [str(m.files) for m in columns.values()]),
        ("lines", [str(m.lines) for m in columns.values()]),
        ("lines per file, median/p95/longest", [spread(m.file_lines) for m in columns.values()]),
        ("lines per function, median/p95/longest", [spread(m.function_lines) for m in columns.values()]),
        ("characters per line", [f"{m.characters / m.lines:.1f}" for m in columns.values()]),
        (
            "conditional expressions per 1,000 lines",
            [f"{m.rate(m.conditional_expressions):.1f}" for m in columns.values()],
        ),
        ("  nested in each other", [str(m.nested_conditionals) for m in columns.values()]),
        ("comprehensions per 1,000 lines", [f"{m.rate(m.comprehensions):.1f}" for m in columns.values()]),
        (
            "  that need a second reading, per 1,000",
            [f"{m.rate(m.dense_comprehensions):.1f}" for m in columns.values()],
        ),
        ("assignments of three or more targets", [str(m.wide_assignments) for m in columns.values()]),
        ("vague locals per 1,000 lines", [f"{m.rate(m.vague_locals):.1f}" for m in columns.values()]),
    ]
    print(f"{'':42}" + "".join(f"{name:>18}" for name in columns))
    for title, cells in rows:
        print(f"{title:42}" + "".join(f"{cell:>18}" for cell in cells))


def print_packages() -> None:
    print(
        f"{'package':52}{'lines':>7}{'ifexp':>7}{'compr':>7}{'dense':>7}{'wide':>6}{'vague':>7}{'chars':>7}"
    )
    folders = [path for path in OURS.rglob("*") if path.is_dir() and list(path.glob("*.py"))]
    for folder in sorted({OURS, *folders}):
        m = measure(path for path in sorted(folder.glob("*.py")))
        if m.lines == 0:
            continue
        rates = (m.conditional_expressions, m.comprehensions, m.dense_comprehensions)
        cells = "".join(f"{m.rate(count):>7.1f}" for count in rates)
        cells += f"{m.wide_assignments:>6}{m.rate(m.vague_locals):>7.1f}{m.characters / m.lines:>7.1f}"
        name = str(folder.relative_to(ROOT)).removeprefix("ai_platform_engineering/")
        print(f"{name:52}{m.lines:>7}{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by-package", action="store_true", help="one line for each of our packages")
    if parser.parse_args().by_package:
        print_packages()
        return
    columns = {"ours": measure(sources(OURS))}
    for name in ANCHORS:
        columns[name] = measure(sources(installed(name)))
    print_table(columns)


if __name__ == "__main__":
    main()
