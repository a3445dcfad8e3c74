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
from pinfeed.bench import show_progress
from pinfeed.bench.facts import machine_facts
from pinfeed.bench.report import facts_line, workload_table, write_json

RESULTS = Path(__file__).parent / "results"
README_TABLES = ("images", "epoch", "pad-tensors", "epoch-ragged")
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
        "--readme", type=Path, help="write the main table between this file's marks"
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
    parts = [facts_line(facts), *map(workload_table, results)]
    parts += ["### Targets", targets.check_table(records)]
    (folder / "results.md").write_text("\n\n".join(parts) + "\n")
    (folder / "targets.json").write_text(json.dumps(records, indent=1) + "\n")
    try:
        plot.draw(folder / "results.png", results)
    except ImportError as error:
        print(f"no plot: {error}", file=sys.stderr)


def _update_readme(path: Path, facts: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Replace what stands between the marks with the tables a reader looks for first."""
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path} lacks the marks {BEGIN} and {END}")
    tables = [workload_table(results[name]) for name in README_TABLES if name in results]
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    body = "\n\n".join([f"Measured by `make bench` on {facts_line(facts)}.", *tables])
    path.write_text(f"{before}{BEGIN}\n{body.strip()}\n{END}{after}")


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
            print(f"\n{workload_table(results[name])}", flush=True)
            # After each, so that an interrupt loses nothing.
            _write(options.results, facts, list(results.values()))

    saved = _load(options.results / "results.json")
    results = {result["name"]: result for result in saved["workloads"]}
    print(f"\n{targets.check_table(targets.check(results, saved['facts']))}")
    if options.readme:
        _update_readme(options.readme, saved["facts"], results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
