"""Runs workloads, writes their tables, and checks their targets."""

import argparse
import json
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bench import report
from bench.harness import WORKLOADS, measure
from bench.targets import check

ROOT = Path(__file__).parents[1]


def _arguments(module: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", default=["*"], help="workloads, or patterns such as 'epoch*'")
    add("--list", action="store_true", help="print the workloads")
    add("--last", action="store_true", help="show the last results, run nothing")
    add("--check", action="store_true", help="fail if a target is missed by more than is accepted")
    add("--write", action="store_true", help="write the main tables into the pages")
    add("--seconds", type=float, default=8.0, help="seconds per workload (default 8)")
    quick = {"action": "store_const", "const": 0.0, "dest": "seconds"}
    add("--quick", help="check that everything runs; ignore the times", **quick)
    add("--results", type=Path, default=ROOT / "bench" / "results", help="folder of the results")
    add("--here", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(module: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measures a workload in a fresh process, so that workloads don't affect each other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record.json")
        command = [sys.executable, "-m", module, name, f"--here={path}"]
        command.append(f"--seconds={options.seconds}" if options.seconds else "--quick")
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if path.exists():
            return json.loads(path.read_text())
    crashed = {"status": "failed", "note": f"exit status {code}"}
    whole = {"name": "the whole workload", "role": "other", "job": ""} | crashed
    return {"name": name, "title": WORKLOADS[name].title, "returns": None, "alternatives": [whole]}


def _write_page(path: Path, text: str, name: str = "benchmark") -> None:
    """Replaces the text between the two comments with the name."""
    marks = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = path.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not end:
        raise SystemExit(f"{path} lacks the comments {' and '.join(marks)}")
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def main(module: str) -> int:
    """Runs the command line; `module` is the module that Python ran."""
    options = _arguments(module)
    names = [n for n in WORKLOADS if any(fnmatch(n, pattern) for pattern in options.names)]
    if not names:
        raise SystemExit(f"no workload is called {' or '.join(options.names)}; see --list")
    if options.list:
        print("\n".join(f"{name:20} {WORKLOADS[name].title}" for name in names))
        return 0
    if options.here:
        options.here.write_text(json.dumps(measure(WORKLOADS[names[0]], options.seconds)))
        return 0

    path = options.results / "results.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
    if not options.last:
        facts, earlier = report.machine_facts(), saved
        # Results of other workloads stay if machine and versions are the same.
        saved = {"facts": facts, "workloads": {}}
        if earlier.get("facts") == facts and len(names) < len(WORKLOADS):
            saved["workloads"] = earlier["workloads"]
        print(report.facts_line(facts), flush=True)
        options.results.mkdir(parents=True, exist_ok=True)
        for name in names:
            record = saved["workloads"][name] = _run(module, name, options)
            print(f"\n{report.result_table(record)}", flush=True)
            # after each workload, so that an interrupt keeps the earlier ones
            path.write_text(json.dumps(saved))
    if not saved:
        raise SystemExit(f"no results in {options.results}; run without --last first")

    records = {name: saved["workloads"][name] for name in WORKLOADS if name in saved["workloads"]}
    verdicts = [v for name, r in records.items() for v in check(WORKLOADS[name].targets, r)]
    heading = f"Measured by `python -m {module}` on {report.facts_line(saved['facts'])}."
    targets = report.target_table(verdicts)
    parts = [heading, *map(report.result_table, records.values()), targets]
    (options.results / "results.md").write_text("\n\n".join(parts) + "\n")
    print(f"\n{targets}")
    if options.write:
        short = (
            f"Measured by `python -m {module}` on {report.short_facts_line(saved['facts'])}. "
            "10× means that the alternative takes ten times as long as pinfeed."
        )
        _write_page(ROOT / "README.md", f"{report.readme_table(records)}\n\n{short}")
        missed = report.target_table(verdicts, missed=True)
        compared, alone = report.main_tables(records)
        page = ROOT / "bench" / "README.md"
        _write_page(page, f"{heading}\n\n{compared}")
        _write_page(page, alone, "alone")
        _write_page(page, missed, "targets")
    failed = report.failures(records.values(), verdicts)
    print("\n".join(failed), file=sys.stderr)
    return 1 if options.check and failed else 0
