"""Draw charts with matplotlib; runs in the environment that has it. See picture.py."""

import json
import sys
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

_COLOURS = ("#1f5fbf", "#d9822b", "#3d9970", "#a64d79", "#7a7a7a")
_COLUMNS = 2
_ROW_INCHES = 4.1
_FOOT_INCHES = 0.4
_NUMBERS = FuncFormatter(lambda value, _: f"{value:,.7g}")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "svg.hashsalt": "duly",  # the same numbers make the same file
}


def main() -> None:
    """Read the order from standard input and write the image that is named."""
    order = json.load(sys.stdin)
    mpl.use("agg")
    mpl.rcParams.update(_STYLE)
    count = len(order["charts"])
    rows = (count + _COLUMNS - 1) // _COLUMNS
    columns = min(count, _COLUMNS)
    height = _ROW_INCHES * rows + _FOOT_INCHES
    figure, grid = pyplot.subplots(rows, columns, figsize=(6.2 * columns, height), squeeze=False)
    axes = [one for row in grid for one in row]
    for place, chart in zip(axes, order["charts"], strict=False):
        _draw(place, chart)
    for place in axes[count:]:
        place.axis("off")
    figure.tight_layout(rect=(0, _FOOT_INCHES / height, 1, 1))
    figure.text(0.01, 0.008, order["footer"], fontsize=8, color="#555555", va="bottom")
    figure.savefig(sys.argv[1], dpi=110, facecolor="white", metadata=_metadata(sys.argv[1]))


def _draw(place: Any, chart: dict[str, Any]) -> None:
    for line, colour in zip(chart["lines"], _COLOURS, strict=False):
        steps = "default" if chart["x_is_logarithmic"] else "steps-mid"
        place.plot(
            line["xs"], line["ys"], color=colour, label=line["name"], linewidth=1.8, drawstyle=steps
        )
    place.set_title(chart["title"])
    place.set_xlabel(chart["x"])
    place.set_ylabel(chart["y"])
    if chart["x_is_logarithmic"]:
        place.set_xscale("log")
        place.xaxis.set_major_formatter(_NUMBERS)
    place.set_ylim(bottom=0)
    place.yaxis.set_major_formatter(_NUMBERS)
    place.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.16), ncol=2, frameon=False, fontsize=9)


def _metadata(path: str) -> dict[str, None]:
    """No date in the file beside the one in the footer."""
    return {"Date": None} if path.endswith(".svg") else {}


if __name__ == "__main__":
    main()
