"""`python -m bench`: runs workloads, writes their tables, compares them with the targets."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bench import plot, suite, targets
from bench.peers import dali
from bench.report import README_JOBS, readme_table, result_table
from bench.tables import facts_line, machine_facts, show_progress, write_json

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="workloads, or patterns such as 'size-*'; all if none"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each way (default 30)")
    parser.add_argument(
        "--budget", type=float, default=4, help="seconds for each slow way (default 4)"
    )
    parser.add_argument("--dali", action="store_true", help="install DALI beside, if it isn't yet")
    parser.add_argument("--keep", action="store_true", help="keep the results of other workloads")
    parser.add_argument(
        "--check", action="store_true", help="only compare the last results with the targets"
    )
    parser.add_argument(
        "--readme",
        action="store_true",
        help="write the main results between the marks of README.md and bench/README.md",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(patterns: Sequence[str]) -> list[str]:
    names = [
        name
        for name in suite.NAMES
        if not patterns or any(fnmatch(name, pattern) for pattern in patterns)
    ]
    if not names:
        raise SystemExit(f"no workload is called {' or '.join(patterns)}; --list prints them")
    return names


def _load(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise SystemExit("no results yet: run `make bench` first")
    return json.loads(path.read_text())


def _write(folder: Path, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> None:
    """Write the JSON file, and from it the tables and the plot."""
    write_json(folder / "results.json", facts, results)
    records = targets.check({result["name"]: result for result in results}, facts)
    parts = [facts_line(facts), *map(result_table, results)]
    parts += ["### Targets", targets.check_table(records)]
    (folder / "results.md").write_text("\n\n".join(parts) + "\n")
    (folder / "targets.json").write_text(json.dumps(records, indent=1) + "\n")
    try:
        plot.draw(folder / "results.png", results)
    except ImportError as error:
        print(f"no plot: {error}", file=sys.stderr)


def _update_page(path: Path, text: str) -> None:
    """Replace what stands between the marks."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"{path} lacks the marks {BEGIN} and {END}")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{text.strip()}\n{END}{after}")


def main() -> int:
    options = _arguments()
    if options.list:
        print("\n".join(suite.NAMES))
        return 0
    if options.here:
        (name,) = options.names
        result = suite.run_here(name, options.rounds, options.budget, show_progress)
        show_progress("")
        options.here.write_text(json.dumps(result))
        return 0

    if not options.check:
        if options.dali:
            dali.install()
        facts, results = machine_facts(), {}
        if options.keep and (options.results / "results.json").exists():
            old = _load(options.results / "results.json")["workloads"]
            results = {result["name"]: result for result in old}
        print(facts_line(facts), flush=True)
        for name in _chosen(options.names):
            results[name] = suite.run(name, options.rounds, options.budget)
            print(f"\n{result_table(results[name])}", flush=True)
            # After each, so that an interrupt loses nothing.
            _write(options.results, facts, list(results.values()))

    saved = _load(options.results / "results.json")
    results = {result["name"]: result for result in saved["workloads"]}
    print(f"\n{targets.check_table(targets.check(results, saved['facts']))}")
    if options.readme:
        machine = f"Measured by `make bench` on {facts_line(saved['facts'])}."
        details = [result_table(results[name]) for name in README_JOBS if name in results]
        _update_page(suite.ROOT / "README.md", f"{readme_table(results)}\n\n{machine}")
        _update_page(suite.ROOT / "bench" / "README.md", "\n\n".join([machine, *details]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
