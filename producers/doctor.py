"""``reveal-agent doctor``: what this host does not offer, why it matters, what to do."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import statistics
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from producers.config import AgentSettings
from producers.host import make_collectors
from producers.publisher import in_short, producer_config
from producers.reading import Reader, SystemReader
from producers.source import Collector, Noted
from schemas.topics import LAYOUTS, TELEMETRY

BROKER_S = 5.0
WAKES = 20
TIME_ERROR = 5
"""What ntp_adjtime(3) returns while nothing disciplines the clock."""
BUSY_SHARE = 0.1
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "pit")
YEAR_2024_S = 1_704_067_200


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `why` and `remedy` are empty where all is well.

    Without what is `essential` the agent is of no use.
    """

    what: str
    well: bool
    essential: bool
    found: str
    why: str = ""
    remedy: str = ""


ESSENTIAL = ("proc/stat", "proc/meminfo")
PERMIT = "run the agent as root, or let its user read the file"
REPORT = "report it with the file's text and the kernel's version (uname -r)"
MOUNT = "mount the host's /proc and name it with --path.proc"


def examine(settings: AgentSettings, brokers: str) -> Iterator[Finding]:
    """Look at everything, in order; each finding comes when it is known."""
    with SystemReader(settings.proc_root, settings.sys_root) as reader:
        collectors = make_collectors(settings)
        try:
            yield from merged(
                finding
                for collector in collectors
                for finding in check_collector(collector, reader)
            )
            yield check_cost(
                _sampling_ms(collectors, reader, settings.interval_ms), settings.interval_ms
            )
        finally:
            for collector in collectors:
                collector.close()
    yield check_boot_id(settings.proc_root)
    yield check_network(settings.proc_root)
    yield check_name(settings.host_name)
    yield check_date(time.time())
    yield check_synchronised(_clock_state())
    yield check_clock_source(settings.sys_root)
    yield check_wakes(_lateness_ms(settings.interval_ms), settings.interval_ms)
    if brokers:
        yield check_brokers(brokers)


def healthy(findings: Sequence[Finding]) -> bool:
    """Return whether everything essential works."""
    return all(f.well or not f.essential for f in findings)


def merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Make one of all that miss the same for the same reason, where the first of them was."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for n, f in enumerate(findings):
        alike.setdefault((n,) if f.well else (f.found, f.why, f.remedy), []).append(f)
    for first, *others in alike.values():
        more = len({f.what for f in others} - {first.what})
        essential = first.essential or any(f.essential for f in others)
        what = f"{first.what} and {more} more" if more else first.what
        yield replace(first, what=what, essential=essential)


def check_collector(collector: Collector, reader: Reader) -> Iterator[Finding]:
    """Let each source of a collector read, and count what it could not make out."""
    for source in collector.sources:
        try:
            source.read(reader, time.monotonic_ns())
            problem = source.problem.removeprefix(f"{source.path}: ")
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
        # Reading may tell that what is missing is something else than the file.
        what, essential = source.path or collector.name, source.path in ESSENTIAL
        channels, bad = len(source.plan.channels), source.bad_fields
        note = f"; {source.note}" if isinstance(source, Noted) and source.note else ""
        if problem:
            why, remedy = source.remedy, ""  # both, in the collector's words
            if problem == os.strerror(errno.EACCES):
                remedy = PERMIT
            yield Finding(what, False, essential, problem, why, remedy)
        elif bad:
            found = f"{channels} channels of {collector.name}, {bad} fields are no numbers{note}"
            yield Finding(what, False, False, found, "those channels stay empty", REPORT)
        elif channels:
            yield Finding(what, True, essential, f"{channels} channels of {collector.name}{note}")


def check_cost(sampling_ms: float, interval_ms: int) -> Finding:
    """Look whether sampling leaves most of the interval to others."""
    share = sampling_ms / interval_ms
    found = f"{sampling_ms:.1f} ms of every {interval_ms}, {100 * share:.1f} % of a core"
    if share < BUSY_SHARE:
        return Finding("sampling", True, False, found)
    return Finding(
        *("sampling", False, False, found),
        why="the agent takes CPU time from the jobs, and misses ticks when the host is busy",
        remedy="sample less often: --interval-ms 500",
    )


def check_boot_id(proc: Path) -> Finding:
    """Read the name of this boot, which tells a reboot from a counter that went back."""
    path = proc / "sys/kernel/random/boot_id"
    try:
        return Finding("boot id", True, False, path.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "not text"
        why = "a restart of the host is not told from other gaps"
        return Finding("boot id", False, False, f"{path}: {reason}", why, MOUNT)


def check_network(proc: Path) -> Finding:
    """Look for an interface: a container has its own, and not the host's."""
    try:
        lines = (proc / "net/dev").read_text(encoding="utf-8", errors="replace").splitlines()[2:]
    except OSError:
        lines = []
    names = [line.partition(":")[0].strip() for line in lines]
    if any(name != "lo" for name in names):
        return Finding("interfaces", True, False, " ".join(names))
    return Finding(
        *("interfaces", False, False, " ".join(names) or "none"),
        why="the network that the jobs use is not seen",
        remedy="in a container, run in the host's network namespace (hostNetwork, --network host)",
    )


def check_name(host: str) -> Finding:
    """Look at the name: it is the key of everything this host sends."""
    if host and not host.startswith("localhost"):
        return Finding("host name", True, False, host)
    return Finding(
        *("host name", False, False, host or "empty"),
        why="hosts of the same name are taken for one",
        remedy="name this host with --host or REVEAL_AGENT_HOST",
    )


def check_date(now_s: float) -> Finding:
    """Look at the date: a clock that was never set starts long ago."""
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s > YEAR_2024_S:
        return Finding("date", True, True, text)
    return Finding(
        *("date", False, True, text),
        why="telemetry is dropped as late, or compared with other hosts at another time",
        remedy="set the clock, and run chronyd or systemd-timesyncd",
    )


def check_synchronised(state: int | None) -> Finding:
    """Look whether something keeps the clock right; `state` is what ntp_adjtime(3) returned."""
    if state is not None and state != TIME_ERROR:
        return Finding("clock", True, False, "kept right by NTP or PTP")
    return Finding(
        *("clock", False, False, "not synchronised" if state == TIME_ERROR else "not known"),
        why="hosts are compared tick by tick: their clocks should agree within a few milliseconds",
        remedy="run chronyd or systemd-timesyncd (a virtual machine's hypervisor may do it too)",
    )


def check_clock_source(sys: Path) -> Finding:
    """Look whether reading the clock is cheap."""
    path = sys / "devices/system/clocksource/clocksource0/current_clocksource"
    try:
        name = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return Finding("clock source", True, False, "not known")
    if name not in SLOW_CLOCKS:
        return Finding("clock source", True, False, name)
    return Finding(
        *("clock source", False, False, name),
        why="each reading of the clock is a slow hardware access, for every program here",
        remedy="find out why the kernel gave up tsc: dmesg | grep -i clocksource",
    )


def check_wakes(lateness_ms: Sequence[float], interval_ms: int) -> Finding:
    """Look whether this process is woken in time; later than half an interval misses the tick."""
    late, worst = statistics.median(lateness_ms), max(lateness_ms)
    found = f"{late:.2f} ms late in the median, {worst:.2f} at most, of {len(lateness_ms)}"
    if worst < interval_ms / 2:
        return Finding("wake-ups", True, False, found)
    return Finding(
        *("wake-ups", False, False, found),
        why=f"a tick that is {interval_ms / 2:g} ms late is missing",
        remedy="give the agent CPU time: CPUWeight= of its systemd unit, its container's CPU limit",
    )


def check_brokers(
    brokers: str, make_producer: Callable[[dict[str, Any]], Any] = Producer
) -> Finding:
    """Ask a broker for the agent's topics."""
    reasons: list[str] = []
    config = producer_config(brokers, f"reveal-doctor-{os.getpid()}", 1000)
    producer = make_producer({**config, "error_cb": lambda e: reasons.append(in_short(e))})
    why = "nothing that this host samples arrives; the agent keeps the newest minutes"
    try:
        known = producer.list_topics(timeout=BROKER_S).topics
    except KafkaException as e:
        producer.poll(0)
        found = f"{brokers}: {reasons[0] if reasons else in_short(e.args[0])}"
        remedy = "check the address, the firewall and that Kafka runs: --brokers host:port"
        return Finding("brokers", False, True, found, why, remedy)
    missing = [t.name for t in (TELEMETRY, LAYOUTS) if t.name not in known]
    if not missing:
        return Finding(
            "brokers", True, True, f"{brokers}: {', '.join((TELEMETRY.name, LAYOUTS.name))}"
        )
    found = f"{brokers}: reached, without topic {' and '.join(missing)}"
    return Finding("brokers", False, True, found, why, "create the topics: reveal topics create")


def _sampling_ms(collectors: Sequence[Collector], reader: Reader, interval_ms: int) -> float:
    """Return how long one tick's reading takes in the mean, files open and planned already."""
    spent_ms = 0.0
    for collector in collectors:
        for source in collector.sources:
            started = time.perf_counter()
            with contextlib.suppress(Exception):  # said already
                source.read(reader, time.monotonic_ns())
            ticks = max(1.0, source.period_ns / 1e6 / interval_ms)
            spent_ms += 1000 * (time.perf_counter() - started) / ticks
    return spent_ms


def _clock_state() -> int | None:
    """Ask the kernel how its clock is kept; None where it does not tell."""
    try:
        state = ctypes.CDLL(None).ntp_adjtime(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else int(state)


def _lateness_ms(interval_ms: int) -> list[float]:
    """Return how late the system wakes us, over a second or so."""
    step_ns = min(interval_ms, 50) * 1_000_000
    due, late = time.monotonic_ns(), []
    for _ in range(WAKES):
        due += step_ns
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        late.append((time.monotonic_ns() - due) / 1e6)
    return late


def as_text(finding: Finding, width: int) -> Iterator[str]:
    """Return the lines for a person, `width` columns wide; with a remedy where one is needed."""
    mark = "ok" if finding.well else "FAILED" if finding.essential else "absent"
    yield from _wrapped(f"{mark:<8} {finding.what:<28}  ", finding.found, width)
    for text in (finding.why, finding.remedy):
        if text:
            yield from _wrapped(f"{'':<8} ", text, width)


def as_json(finding: Finding) -> str:
    """Return one JSON object."""
    return json.dumps(asdict(finding))


def _wrapped(head: str, text: str, width: int) -> list[str]:
    room = max(20, width - len(head))
    lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    return [(head if i == 0 else " " * len(head)) + line for i, line in enumerate(lines)]


def verdict(findings: Sequence[Finding]) -> str:
    """Return the last line: what it all comes to."""
    missing = dict.fromkeys(f.what for f in findings if not f.well and f.essential)
    absent = dict.fromkeys(f.what for f in findings if not f.well and not f.essential)
    if missing:
        return f"Not fit to run: {', '.join(missing)}."
    if absent:
        return f"Fit to run, without: {', '.join(absent)}."
    return "Fit to run, with everything that the agent can read."
