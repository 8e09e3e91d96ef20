"""The page of `reveal evaluate --html`: what stands in it, and that names cannot break it."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from deploy import plots
from deploy.cli import main
from schemas.records import Channel, Kind, Subsystem
from streams.config import WorkerSettings
from tests.deploy.made import label, record
from tests.deploy.test_arrays import save

HOSTILE = "<script>alert(1)</script>&\"'$x^2$\x1b[31m"
CHANNELS = tuple(
    Channel(f"{HOSTILE}{i}", "<img src=x>", subsystem, "%</svg>", Kind.RATE)
    for subsystem in (Subsystem.CPU, Subsystem.NETWORK)
    for i in range(6)
)


class Page(HTMLParser):
    """Tags, texts and attributes of a page; ids have to be unlike, and tags closed in order."""

    VOID = frozenset(("meta", "br", "img", "link"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(k, v or "") for k, v in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(k, v or "") for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def report(recording: Path, page: Path, *options: str) -> Result:
    arguments = ["evaluate", str(recording), "--html", str(page), *options]
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, dict[str, Any]]:
    """The page of two hosts with hostile names, and the figures beside it."""
    folder = tmp_path_factory.mktemp("report")
    spells = [(60.0, 80.0, Subsystem.CPU), (110.0, 130.0, Subsystem.NETWORK)]
    path = record(folder / "made.avro", 160, {HOSTILE: spells, "b": spells[:1]}, CHANNELS)
    labels = folder / "labels.json"
    busy = label(f"busy{HOSTILE}", 60, 80, "cpu", step_cost=1.4)
    lost = label("flood", 110, 130, "network", hosts=["b"])  # it was on the other
    labels.write_text(json.dumps([lost, busy]))
    done = report(
        *(path, folder / "r.html", "--labels", str(labels), "--json"), "--baseline-seconds", "40"
    )
    assert done.exit_code == 0, done.output
    assert f"wrote {folder / 'r.html'}" in done.stderr
    return Page((folder / "r.html").read_text(encoding="utf-8")), json.loads(done.stdout)


def test_the_page_says_the_figures(made: tuple[Page, dict[str, Any]]) -> None:
    page, found = made
    assert (found["events"], found["event_recall"]) == (3, pytest.approx(2 / 3))
    assert found["episodes_elsewhere"] == 1
    assert "67 % 2 of 3, one for each host; 50 % on at least one host." in page.text
    assert f"Delay {found['delay_p50_s']:.1f} s" in page.text
    assert f"Ranking (VUS-PR) {found['vus_pr']:.3f}" in page.text
    assert "1. busy" in page.text
    assert "steps took 1.40 times the usual" in page.text
    assert "Told after" in page.text
    assert "and on 1 other host" in page.text
    assert "2. flood/0 after" in page.text
    assert "Not found on any host." in page.text
    for key in WorkerSettings.model_fields:
        assert key in page.texts
    assert page.texts[page.texts.index("baseline_seconds") + 1] == "40"


def test_the_page_has_plots_of_hosts_and_channels(made: tuple[Page, dict[str, Any]]) -> None:
    page, _ = made
    # Each host for screens and phones, and four channels of the one fault that was found.
    assert page.tags["svg"] == 2 * 2 + 4
    assert page.tags["figure"] == 4
    assert page.tags["table"] == 3


def test_the_page_needs_nothing_else(made: tuple[Page, dict[str, Any]]) -> None:
    page, _ = made
    assert not {"script", "link", "img", "iframe", "object", "base"} & page.tags.keys()
    for name, value in page.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#"), (name, value)
    csp = [value for name, value in page.attributes if value.startswith("default-src")]
    assert csp == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_names_are_shown_as_they_are(made: tuple[Page, dict[str, Any]]) -> None:
    page, _ = made
    shown = HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}")
    assert shown in page.texts  # the host
    assert f"1. busy{shown}/0" in page.texts
    assert any(f"{shown}{i}[<img src=x>]" in page.texts for i in range(6))
    assert "\x1b" not in page.text


def test_parts_of_plots_have_names_of_their_own(made: tuple[Page, dict[str, Any]]) -> None:
    page, _ = made
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 100
    for name, value in page.attributes:
        if name == "xlink:href":
            assert value.removeprefix("#") in ids
        if name == "clip-path":
            assert value.removeprefix("url(#").removesuffix(")") in ids


def test_a_page_of_arrays(tmp_path: Path) -> None:
    done = report(save(tmp_path / "m-1.npz"), tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "Detection on m-1.npz" in page.text
    assert "Array data set; time counts from its first judged sample." in page.text
    assert "Right subsystem first" not in page.text
    assert "Causes" not in page.texts
    assert page.tags["svg"] > 2


def test_a_file_that_is_there_stays_unless_forced(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    page.write_text("mine")
    arrays = save(tmp_path / "m-1.npz")
    done = report(arrays, page)
    assert done.exit_code == 2
    assert "r.html is there already: give another name, or --force" in done.stderr
    assert page.read_text() == "mine"
    assert report(arrays, page, "--force").exit_code == 0
    assert page.read_text().startswith("<!doctype html>")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = report(save(tmp_path / "m-1.npz"), tmp_path / "none" / "r.html")
    assert done.exit_code == 2
    assert "there is no folder" in done.stderr


def test_without_matplotlib_it_says_which_extra_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    done = report(save(tmp_path / "m-1.npz"), tmp_path / "r.html")
    assert done.exit_code == 2
    assert "--html needs matplotlib" in done.stderr
    assert "pip install 'reveal-telemetry[report]'" in done.stderr


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_long_series_keeps_its_peaks_and_stays_small() -> None:
    at = np.arange(100_000.0)
    scores = np.zeros(100_000)
    scores[43_210] = 9.0
    points = plots._highest(at, scores, 350)
    assert len(points[0]) == 350
    assert points[1].max() == 9.0
    assert points[0][points[1].argmax()] == 43_210
    assert len(plots.timeline(at, scores, [], [], 350)) < 40_000


def test_no_line_is_drawn_where_windows_are_missing() -> None:
    at = np.array([0.0, 1, 2, 40, 41])
    filled, values = plots._with_holes(at, np.arange(5.0))
    assert filled.tolist() == [0, 1, 2, 2, 40, 41]
    assert math.isnan(values[3])
    assert np.delete(values, 3).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0:00"), (75, "1:15"), (3720, "1:02 h"), (86_400, "1 d"), (97_200, "1 d 3 h")],
)
def test_times_on_an_axis(seconds: float, said: str) -> None:
    assert plots._clock(seconds, None) == said


def test_marks_have_numbers_where_there_is_room() -> None:
    at = np.arange(60.0)
    marks = [plots.Mark(i, i + 0.5, plots.LABEL, i + 700) for i in range(1, 41)]
    wide = {t for t in texts(plots.timeline(at, at, marks, [], 1100)) if t.startswith("7")}
    narrow = {t for t in texts(plots.timeline(at, at, marks, [], 350)) if t.startswith("7")}
    assert wide == {str(mark.number) for mark in marks}
    assert "701" in narrow < wide


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0"), (-20, "-20 s"), (90, "+90 s"), (900, "+15 min"), (-7200, "-2 h"), (259_200, "+3 d")],
)
def test_times_from_the_start_of_a_fault(seconds: float, said: str) -> None:
    assert plots._from_start(seconds, None) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(9630, "requests/s", "9.63k"), (2e9, "B/s", "2 GB/s"), (0, "interrupts/s", "0"), (7, "", "7")],
)
def test_a_long_unit_takes_no_room_from_the_plot(value: float, unit: str, said: str) -> None:
    assert plots._short(value, unit) == said


def test_units_are_no_formulas() -> None:
    svg = plots.channel(
        np.arange(30.0),
        np.arange(30, dtype=np.float32),
        (0, 5),
        "$\\f{1$",
        plots.Mark(5, 9, plots.LABEL),
        6,
    )
    assert any("$\\f{1$" in text for text in texts(svg))
