"""What the suite prints and writes: tables of times and of counts, and the one table of README.md."""

from collections.abc import Mapping
from typing import Any

from bench.tables import duration, table, workload_table

# The workloads in README.md's table: what it calls the job, and the way that most people take.
README_JOBS = {
    "images": (
        "256 photographs of 224×224: uint8 NHWC → float32 NCHW, normalized",
        "torch, as usually written",
    ),
    "epoch": (
        "An epoch over 50,000 images of 32×32, shuffled, normalized",
        "DataLoader, torchvision v2 per sample",
    ),
    "pad-tensors": ("256 sequences of 1–511 tokens, padded", "torch `pad_sequence`"),
    "epoch-ragged": (
        "250,000 of 1,000,000 sequences of 1–256 tokens, shuffled, padded",
        "list of tensors, `pad_sequence`",
    ),
}


def result_table(result: Mapping[str, Any]) -> str:
    """Return the table of one workload, whether it has times or counts."""
    if result["kind"] == "timing":
        return workload_table(result)
    rows = []
    for way in result["ways"]:
        values = way.get("values")
        if values is None:
            rows.append([way["name"], way["status"], *["-"] * (len(result["columns"]) - 1)])
        else:
            rows.append([way["name"], *map(_cell, values)])
    body = table(["way", *result["columns"]], rows)
    notes = [
        f"- {way['name']}: {way['status']} ({way['note']})" for way in result["ways"] if way["note"]
    ]
    return "\n".join([f"### {result['title']}", "", body, "", *notes])


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"


def readme_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for each job: pinfeed, the physical limit, the quickest peer, the usual way."""
    rows = []
    for name, (job, usual_name) in README_JOBS.items():
        ways = [way for way in results.get(name, {}).get("ways", ()) if way.get("to_pinfeed")]
        limit = next((way for way in ways if way["role"] == "limit"), None)
        own = next((way for way in ways if way["role"] == "pinfeed"), None)
        usual = next((way for way in ways if way["name"] == usual_name), None)
        if limit is None or own is None or usual is None:
            continue  # a row that was not measured as a whole says nothing
        peers = [way for way in ways if way["role"] == "peer"]
        quickest = min(peers, key=lambda way: way["to_pinfeed"]["median"])
        rows.append(
            [job, duration(own["median_s"]), duration(limit["median_s"])]
            + [f"{way['name']}: {way['to_pinfeed']['median']:.2g} x" for way in (quickest, usual)]
        )
    header = ["job, one thread", "pinfeed", "physical limit", "quickest other way", "usual way"]
    return table(header, rows)
