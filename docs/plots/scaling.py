"""Draws how many nodes a storage feeds: ``PYTHONPATH=. python docs/plots/scaling.py``."""

from bench.scaling import GB, NODE, PLANS, STORAGE, bound, simulate
from drawing import LIMIT, OTHER_PEER, PEER, PINFEED, new_plot, save_plot

NODES = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256]
TICKS = [2**power for power in range(9)]
COLOURS = [PEER, PINFEED, PINFEED, OTHER_PEER, LIMIT]


def main() -> None:
    """Simulates every plan of ``python -m bench.scaling``, with more nodes in between."""
    rate = STORAGE.rate / GB
    figure, axes = new_plot(f"Share of the GPUs' speed, shared storage of {rate:.0f} GB/s", 3.6)
    for (name, (job, plan)), colour in zip(PLANS.items(), COLOURS, strict=True):
        cached = [plan.cached(NODE, nodes) for nodes in NODES]
        shares = [
            simulate(job, NODE, STORAGE, nodes, cached=part)
            for nodes, part in zip(NODES, cached, strict=True)
        ]
        bounds = [
            bound(job, NODE, STORAGE, nodes, part)
            for nodes, part in zip(NODES, cached, strict=True)
        ]
        style = "--" if plan.own_shards else "-"
        above = 3 if plan.own_shards else 2
        axes.plot(
            NODES, shares, style, color=colour, marker=".", markersize=4, label=name, zorder=above
        )
        axes.plot(NODES, bounds, ":", color=colour, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(TICKS, list(map(str, TICKS)))
    axes.set(xlabel="nodes of 8 GPUs; dotted: without queues", ylim=(0, 1.05))
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    save_plot(figure, "scaling")


if __name__ == "__main__":
    main()
