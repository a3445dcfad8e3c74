"""`python -m bench.gpu`: measures, writes tables, and says which targets are met."""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from bench.gpu import epoch, kernels, training
from bench.gpu.timing import Scale
from bench.tables import facts_line, machine_facts, table, write_json

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
PARTS = {"kernels": kernels.results, "epoch": epoch.results, "training": training.results}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all if none")
    parser.add_argument("--device", default="cuda", help="default cuda")
    parser.add_argument("--small", action="store_true", help="only to see that it runs")
    parser.add_argument("--rounds", type=int, default=20, help="samples of each way (default 20)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results go")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(
            f"no part is called {' or '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    return options


def _table(records: list[dict[str, Any]]) -> str:
    rows = []
    for record in records:
        values = ", ".join(f"{name} {value:.4g}" for name, value in record["values"].items())
        targets = ", ".join(
            f"{name}: {'met' if is_met else 'NOT met'}"
            for name, is_met in record["targets"].items()
        )
        rows.append([record["name"], values, targets])
    return table(["workload", "measured", "target"], rows)


def main() -> int:
    """Runs the parts that were asked for."""
    options = _arguments()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(
            "this needs a GPU, and torch finds none; --device cpu --small only tries it out",
            file=sys.stderr,
        )
        return 1
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    facts = machine_facts() | {"device": name, "cuda": torch.version.cuda, "small": options.small}
    scale = Scale(device, options.small, options.rounds)
    heading = f"Measured on {name}; {facts_line(facts)}."
    print(heading, flush=True)
    records: list[dict[str, Any]] = []
    for part in options.parts or PARTS:
        for record in PARTS[part](scale):
            records.append(record)
            print(_table([record]).splitlines()[-1], flush=True)
    options.results.mkdir(parents=True, exist_ok=True)
    write_json(options.results / "results.json", facts, records)
    (options.results / "results.md").write_text(f"{heading}\n\n{_table(records)}\n")
    print(f"\n{_table(records)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
