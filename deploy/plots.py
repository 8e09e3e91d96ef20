"""Plots of a report as pieces of SVG that take their colours from the page around them.

Names of hosts and channels are never in a plot: they stand beside it as text of the page.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deploy.units import human
from schemas.errors import RevealError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

COLOURS = {
    # a colour that nothing else has: the page's name for it
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--line)",
    "#040404": "var(--label)",
    "#050505": "var(--episode)",
    "#060606": "var(--false)",
    "#070707": "var(--band)",
}
INK, FAINT, LINE, LABEL, EPISODE, FALSE, BAND = COLOURS
DPI = 96.0
PIXELS_OF_A_NUMBER, PIXELS_OF_A_TIME = 16, 70
MINUTE, HOUR, DAY = 60, 3600, 86_400
STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 5, 7, 14, 28)),
)
LONGEST_UNIT = 6
HOLE = 3.5
"""Times the usual distance between windows: further apart, and some are missing."""
RANGE_FOR_LOG = 40.0
"""Where the highest score is more than this times the usual, the axis is logarithmic above it."""


class NoMatplotlib(RevealError, ImportError):
    """Plots cannot be drawn here. The text says how to get what is missing."""


def need_matplotlib() -> None:
    """Check that plots can be drawn.

    Raises
    ------
    NoMatplotlib
        The library is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise NoMatplotlib(
            "--html needs matplotlib, which comes with the extra report: "
            "pip install 'reveal-telemetry[report]'"
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A time that is set off: begin and end in seconds, a colour above, and a number if not 0."""

    begin: float
    end: float
    colour: str
    number: int = 0


def mark(begin_us: int, end_us: int, zero_us: int, colour: str, number: int = 0) -> Mark:
    """Return a mark from times on the clock and that of the plot's zero, microseconds."""
    return Mark((begin_us - zero_us) / 1e6, (end_us - zero_us) / 1e6, colour, number)


def timeline(
    at: NDArray[np.float64],
    scores: NDArray[np.float64],
    labels: Sequence[Mark],
    episodes: Sequence[Mark],
    width: int,
) -> str:
    """Return a host's scores over time, with labels behind them and episodes below.

    Parameters
    ----------
    at, scores
        Shape ``(windows,)``: seconds since the plot's zero, in order, and fused scores.
    width
        Pixels. Where windows are more than pixels, each shows its highest.
    """
    from matplotlib.ticker import MultipleLocator

    at, scores = _highest(at, scores, width)
    with _axes(width, 190 if width > 600 else 170) as (ax, draw):
        pixel = (at[-1] - at[0]) / width if len(at) else 1.0
        numbered = -math.inf
        for mark in labels:
            ax.axvspan(mark.begin, mark.end, color=mark.colour, alpha=0.28, linewidth=0)
            middle = (mark.begin + mark.end) / 2
            if mark.end - mark.begin < 2 * pixel:  # too thin for its colour to be seen
                ax.axvline(middle, color=mark.colour, alpha=0.6, linewidth=1)
            if mark.number and middle - numbered >= PIXELS_OF_A_NUMBER * pixel:
                numbered = middle
                ax.text(
                    middle,
                    1.0,
                    str(mark.number),
                    color=FAINT,
                    fontsize=8,
                    ha="center",
                    va="bottom",
                    transform=ax.get_xaxis_transform(),
                )
        known = scores[np.isfinite(scores)]
        usual = float(np.median(known)) if len(known) else 0.0
        top = float(known.max(initial=0.0))
        if usual > 0 and top > RANGE_FOR_LOG * usual:
            ax.set_yscale("symlog", linthresh=4 * usual)
        ax.plot(*_with_holes(at, scores), color=LINE, linewidth=1.0)
        ax.set_ylim(0, 1.05 * top or 1)
        below = ax.get_xaxis_transform()
        for mark in episodes:
            ax.plot(
                (mark.begin, mark.end),
                (-0.045, -0.045),
                color=mark.colour,
                linewidth=5,
                transform=below,
                clip_on=False,
                solid_capstyle="butt",
            )
        if len(at):
            ax.set_xlim(at[0], max(at[-1], at[0] + 1))
            ax.xaxis.set_major_locator(MultipleLocator(_step(at[-1] - at[0], width)))
        ax.tick_params(axis="x", pad=9)
        ax.xaxis.set_major_formatter(_clock)
        return draw()


def channel(
    at: NDArray[np.float64],
    means: NDArray[np.float32],
    expected: tuple[float, float],
    unit: str,
    fault: Mark,
    told_at: float,
) -> str:
    """Return what a channel did around a fault, with the range where it is expected.

    Parameters
    ----------
    at, means
        Shape ``(windows,)``: seconds since the fault began, and the windows' means.
    expected
        Lowest and highest.
    told_at
        Seconds after the fault began.
    """
    from matplotlib.ticker import MultipleLocator

    with _axes(280, 132) as (ax, draw):
        ax.axvspan(fault.begin, fault.end, color=fault.colour, alpha=0.28, linewidth=0)
        if np.isfinite(expected).all():
            ax.axhspan(*expected, color=BAND, alpha=0.35, linewidth=0)
        ax.plot(*_with_holes(at, means.astype(np.float64)), color=LINE, linewidth=1.2)
        ax.axvline(told_at, color=EPISODE, linewidth=1.2, linestyle=(0, (3, 2)))
        if len(at):
            ax.xaxis.set_major_locator(MultipleLocator(_step(at[-1] - at[0], 280)))
        ax.xaxis.set_major_formatter(_from_start)
        ax.yaxis.set_major_formatter(lambda y, _: _short(y, unit))
        ax.locator_params(axis="y", nbins=4)
        return draw()


def _short(value: float, unit: str) -> str:
    """Return a value for an axis; a unit that is a long word stands beside the plot."""
    number, _, word = human(value, unit).partition(" ")
    return f"{number} {word}" if 0 < len(word) <= LONGEST_UNIT else number


def _from_start(seconds: float, _: object) -> str:
    size, unit = next(
        (
            step
            for step in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))
            if abs(seconds) >= 2 * step[0]
        ),
        (1, "s"),
    )
    return f"{seconds / size:+.3g} {unit}" if seconds else "0"


def _clock(seconds: float, _: object) -> str:
    sign, whole = ("-" if seconds < 0 else ""), abs(round(seconds))
    days, rest = divmod(whole, 86_400)
    if days:
        return f"{sign}{days} d {rest // 3600} h" if rest >= 3600 else f"{sign}{days} d"
    if rest >= 3600:
        return f"{sign}{rest // 3600}:{rest % 3600 // 60:02} h"
    return f"{sign}{rest // 60}:{rest % 60:02}"


def _step(seconds: float, width: int) -> float:
    """Return the time between two numbers on an axis: one that clocks know, if there is one."""
    least = seconds * PIXELS_OF_A_TIME / width
    return next((step for step in STEPS if step >= least), least)


def _with_holes(
    at: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the same with NaN where windows are missing: no line is drawn over a hole."""
    apart = np.diff(at)
    if not len(apart):
        return at, values
    holes = np.flatnonzero(apart > HOLE * np.median(apart)) + 1
    return np.insert(at, holes, at[holes - 1]), np.insert(values, holes, np.nan)


def _highest(
    at: NDArray[np.float64], scores: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most so many points: the highest of each run of windows."""
    if len(at) <= most:
        return at, scores
    known = np.where(np.isfinite(scores), scores, -np.inf)
    edges = np.linspace(0, len(at), most + 1).astype(int)
    picked = [a + int(known[a:b].argmax()) for a, b in itertools.pairwise(edges.tolist())]
    return at[picked], scores[picked]


@contextmanager
def _axes(width: int, height: int) -> Iterator[tuple[Axes, Callable[[], str]]]:
    """Yield empty axes of so many pixels, and what turns them into SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",  # text stays text, in the page's font
        "svg.hashsalt": "reveal",
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": FAINT,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "axes.linewidth": 0.8,
        "path.simplify_threshold": 0.4,
    }
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever style the user has set
        mpl.rcParams.update(style)
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        ax = figure.add_subplot()
        ax.patch.set_alpha(0)
        ax.margins(x=0)

        def draw() -> str:
            out = io.StringIO()
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(out, format="svg", transparent=True, metadata=nothing)
            return _for_page(out.getvalue())

        yield ax, draw


def _for_page(svg: str) -> str:
    """Return a drawing as a part of a page: its head gone, its colours those of the page.

    Every drawing calls its parts by the same names, and a page has many: the names begin with a
    digest of the drawing.
    """
    svg = svg[svg.index("<svg") :]
    # A style of its own would hold for the whole page.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    own = f"p{zlib.crc32(svg.encode()):08x}"
    svg = re.sub(r'(?<= id=")', f"{own}-", svg)
    svg = re.sub(r'(?<=url\(#)|(?<=href="#)', f"{own}-", svg)
    # Its size in points would win over the page's.
    svg = re.sub(r'(?<=<svg)[^>]*?( viewBox="[^"]*")[^>]*', r' role="img"\1', svg, count=1)
    for colour, name in COLOURS.items():
        svg = svg.replace(colour, name)
    return svg.strip()
