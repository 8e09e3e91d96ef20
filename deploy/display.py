"""Two ways to show the picture: a screen that is drawn anew, or lines that are added."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from deploy.health import Usage
from deploy.picture import Condition, EpisodeChanged, HostChanged, Picture
from deploy.status import PartState, Stack
from deploy.units import human
from deploy.view import Screen
from deploy.wording import anomaly_line, clock_time, count_of, date_time, duration, printable
from schemas.records import EpisodeState

STATUS_S = 10.0


class LiveDisplay:
    """The whole terminal, restored when it ends."""

    def __init__(self, console: Console) -> None:
        self._live = Live(
            Text(),
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def tell(self, change: HostChanged | EpisodeChanged) -> None:
        """Nothing: the screen shows it."""

    def show(self, stack: Stack, picture: Picture) -> None:
        """Draw the picture as it is now."""
        self._live.update(Screen(stack, picture, time.monotonic_ns() // 1000), refresh=True)


class PlainDisplay:
    """A line for every change, and one for the state of things every ten seconds."""

    def __init__(self) -> None:
        self._states: dict[str, PartState] = {}
        self._next_status = time.monotonic() + STATUS_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def tell(self, change: HostChanged | EpisodeChanged) -> None:
        """Print a change."""
        match change:
            case HostChanged(score, _, now):
                reason = f": {printable(score.reason)}" if score.reason else ""
                self._print(f"{printable(score.host)}  {now}{reason}", score.end)
            case EpisodeChanged(anomaly) if anomaly.state is not EpisodeState.ONGOING:
                when = anomaly.onset if anomaly.state is EpisodeState.OPEN else anomaly.latest
                self._print(anomaly_line(anomaly), when)
            case _:
                pass

    def show(self, stack: Stack, picture: Picture) -> None:
        """Print what changed of the parts, and the status when it is time."""
        now_us = time.time_ns() // 1000
        for part in stack.parts:
            if self._states.get(part.name) is not part.state:
                self._states[part.name] = part.state
                if part.state is not PartState.WAITING:
                    pid = "" if part.pid is None else f", pid {part.pid}"
                    self._print(f"{part.name} {part.state}{pid}", now_us)
        if time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + STATUS_S
            self._print(status_line(stack, picture, time.monotonic_ns() // 1000), now_us)

    def _print(self, text: str, when_us: int) -> None:
        click.echo(f"{date_time(when_us)}  {text}")


def status_line(stack: Stack, picture: Picture, now_us: int) -> str:
    """Return the state of things in one line."""
    flow = []
    if stack.windows_per_s is not None:
        flow.append(f"{stack.windows_per_s:.1f} windows/s")
    if stack.lag_records is not None:
        flow.append(f"lag {stack.lag_records:.0f} records")
    if stack.latency_p50_s is not None and stack.latency_p99_s is not None:
        p50, p99 = human(stack.latency_p50_s, "s"), human(stack.latency_p99_s, "s")
        flow.append(f"latency p50 {p50}, p99 {p99}")
    costs = [f"{p.name} {_cost(p.usage)}" for p in stack.parts if p.usage is not None]
    hosts = []
    for score in list(picture.scores.values())[:3]:
        condition = picture.condition(score, now_us)
        learns = condition in (Condition.LEARNING, Condition.RELEARNING)
        progress = f" {score.progress:.0%}" if learns else ""
        hosts.append(f"{printable(score.host)} {condition}{progress}")
    if len(picture.scores) > len(hosts):
        hosts.append(f"and {count_of(len(picture.scores) - len(hosts), 'more host')}")
    anomalies = [f"{len(picture.open)} open {'anomaly' if len(picture.open) == 1 else 'anomalies'}"]
    groups = [flow or ["no windows yet"], costs, hosts, anomalies, stack.trouble]
    return "status: " + "; ".join(", ".join(group) for group in groups if group)


def _cost(usage: Usage) -> str:
    cpu = "" if usage.cpu is None else f"{usage.cpu * 100:.1f} % cpu "
    return cpu + human(usage.rss_bytes, "B")


def summary(stack: Stack, picture: Picture, directory: str) -> list[str]:
    """Return what is left to say when the stack has stopped."""
    counted = ""
    if stack.windows:
        counted = f": {count_of(stack.windows, 'window')}, {count_of(picture.opened, 'episode')}"
    episodes = sorted([*picture.open.values(), *picture.closed], key=lambda a: a.onset)
    return [
        f"stopped after {duration(stack.uptime_s)}{counted}; logs in {directory}",
        *(f"  {text}" for text in stack.losses),
        *(f"  {clock_time(a.onset)}  {anomaly_line(a, channels=1)}" for a in episodes),
    ]
