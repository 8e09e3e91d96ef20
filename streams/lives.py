"""The baselines of hosts: learned, renewed, loaded, given up. When, `models.lifecycle` decides."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.baseline import CannotLearn, Tuning
from streams.fitting import Learned, learn
from streams.hosts import Host, Shelf
from streams.telling import table_of

if TYPE_CHECKING:
    from models.channels import ChannelTable
    from schemas.records import Floats
    from streams.layouts import Layouts


@dataclass(frozen=True, slots=True, eq=False)
class News:
    """A baseline that was learned, or None where the one that there was holds no longer."""

    host: str
    layout: int
    learned: Learned | None


class Lives:
    """What hosts are judged by.

    Parameters
    ----------
    layouts
        Where to look up what a host's channels are.
    executor
        Where baselines are fitted.
    seed
        Of the Isolation Forests.
    keep
        Whether what is learned is handed out by `take_news`.
    tuning
        Of the baselines.

    Attributes
    ----------
    misfits
        Baselines that were offered and are not of their host's rows.
    """

    def __init__(
        self, layouts: Layouts, executor: Executor, *, seed: int, keep: bool, tuning: Tuning
    ) -> None:
        self._layouts = layouts
        self._executor = executor
        self._seed = seed
        self._keep = keep
        self._tuning = tuning
        self._shelf = Shelf()
        self._news: list[News] = []
        self.misfits = 0

    def take_news(self) -> list[News]:
        """Return what was learned or given up since the last call, in order."""
        news, self._news = self._news, []
        return news

    def offer(self, news: News, host: Host | None) -> None:
        """Take what was learned of a host elsewhere or before; the newer wins.

        `host` is it, if it is known under that layout.
        """
        if news.learned is None:
            self._shelf.take(news.host, news.layout)
            if host is not None and host.learned is not None:
                self._change(host)
        elif host is None or news.learned.version > host.version:
            self._shelf.put(news.host, news.layout, news.learned)
            if host is not None:
                self.look_up(host)

    def look_up(self, host: Host) -> None:
        """Judge a host by what was kept for it, if anything was and its layout is known."""
        learned = self._shelf.take(host.name, host.layout)
        if learned is None:
            return
        fits = host.group.baselines
        if (learned.baseline.channels, learned.baseline.mode) != (fits.channels, fits.mode):
            self.misfits += 1
        elif host.channels is None and self._table(host) is None:
            self._shelf.put(host.name, host.layout, learned)
        else:
            self._take_over(host, learned)

    def put_away(self, host: Host) -> None:
        """Keep what a host was judged by for when its layout comes back."""
        if host.learned is not None:
            self._shelf.put(host.name, host.layout, host.learned)

    def forget(self, name: str) -> None:
        """Drop what was kept for a host."""
        self._shelf.forget(name)

    def learn(self, host: Host, values: Floats, end: int) -> None:
        """Learn from a window; fit when there is enough; take the baseline when it is ready."""
        if (host.fitting is not None and not self._failed(host)) or not host.life.learn(values):
            return
        channels = self._table(host)
        if channels is None:
            return
        windows = host.life.enough(channels)
        if windows is not None:
            self._fit(host, channels, windows, end)

    def renew(self, host: Host, values: Floats, end: int, *, flagged: bool, episode: bool) -> None:
        """Take a window of a drifting host, and its new baseline when that is ready."""
        if host.fitting is not None and not self._failed(host):
            return
        windows = host.life.renew(values, flagged=flagged, episode=episode)
        if windows is not None:
            assert host.channels is not None  # noqa: S101 - it is judged
            self._fit(host, host.channels, windows, end)

    def give_up(self, host: Host) -> None:
        """Judge a host no longer by what was known: its workload is another one."""
        self._change(host)
        if self._keep:
            self._news.append(News(host.name, host.layout, None))

    def _change(self, host: Host) -> None:
        host.life.change()
        host.learned = host.fitting = None
        host.group.attended[host.slot] = False
        host.group.episodes.reset(host.slot)
        host.episode = host.long = None

    def _fit(self, host: Host, channels: ChannelTable, windows: Floats, end: int) -> None:
        # Of windows that were thinned out, fewer share ticks.
        overlap = -(-(self._tuning.overlap + 1) // host.life.every) - 1
        host.fitting = self._executor.submit(
            learn,
            windows,
            channels,
            seed=self._seed,
            version=max(end, host.version + 1),
            note=host.life.note,
            keep=self._keep,
            tuning=replace(self._tuning, overlap=overlap),
        )
        self._failed(host)

    def _failed(self, host: Host) -> bool:
        """Take over what was fitted, if it is ready; return whether nothing came of it."""
        if host.fitting is None or not host.fitting.done():
            return False
        fitting, host.fitting = host.fitting, None
        try:
            learned = fitting.result()
        except CannotLearn as e:
            host.life.could_not(str(e))
        except BrokenExecutor:
            raise  # the fitting process is gone: nothing can be learned any more
        except Exception as e:  # one host's odd data is not the end of all others
            host.life.could_not(f"its baseline could not be fitted: {e!r}")
        else:
            self._take_over(host, learned)
            if self._keep:
                self._news.append(News(host.name, host.layout, learned))
            return False
        return True

    def _take_over(self, host: Host, learned: Learned) -> None:
        """Judge a host by another baseline from now on. An episode that is open goes on."""
        host.fitting = None
        if host.learned is None:
            host.group.episodes.reset(host.slot)
        # The bytes go to the topic with the news, and are not kept beside the arrays.
        host.learned, host.version = replace(learned, data=b""), learned.version
        host.group.judge_by(host.slot, learned)
        host.life.fitted(learned.note)

    def _table(self, host: Host) -> ChannelTable | None:
        """Return what a host's channels are; where that is not known, its life waits."""
        layout = self._layouts.get(host.name, host.layout)
        if layout is None:
            host.life.wait("its layout has not been seen yet")
        elif len(layout.channels) != host.group.channels:
            host.life.wait(
                f"its layout has {len(layout.channels)} channels, "
                f"its telemetry {host.group.channels}"
            )
        else:
            host.channels = table_of(layout)
            return host.channels
        return None
