"""One kind of call, made for every GPU: what `producers.source.Source` needs, for NVML.

A file of metrics says which calls a device has, as pure data and small functions::

    def find(nvml: Nvml, device: Device) -> Iterable[Call]:
        yield Call((Number("gpu.power", "W", high=2000e3, scale=1e-3),),
                   lambda: (nvml.nvmlDeviceGetPowerUsage(device.handle),))

    GpuSource(session, "power", find)

Each call is tried once for each device. What is not supported then has no channel there, and is
not asked again until the devices change. What fails for another reason has no channel either,
but is tried again. Once it has a channel, a call that fails gives NaN and is counted, as is a
number outside its bounds: NVML marks what it does not know with all bits set, and some drivers
give utilisations of 1000 % and temperatures of 2000 degrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import ge, le
from typing import Any, TypeAlias

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.lanes import Job
from producers.collectors.gpu.nvml import Nvml, in_short, is_absent, is_lost
from producers.collectors.gpu.pace import Pace
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.visits import Visit
from producers.reading import Reader
from producers.source import EVERY_TICK, SECOND_NS, Field, Plan
from schemas.records import Channel, Kind, Subsystem

NAN = float("nan")
COUNT_MOST = 2.0**32 - 2
"""The largest count that is one: NVML writes all bits set where it does not know."""
TOTAL_MOST = 2.0**63
PERCENT_MOST = 100.0
MIB = 2.0**20

AGAIN_NS = 100_000_000
AGAIN_MOST_NS = 60 * SECOND_NS

NOWHERE = "nvml"
"""The path of every source while there is nothing to ask: they lack the same, and say the same."""

REMEDY = (
    "Without it the GPUs are not seen. Install NVIDIA's driver with libnvidia-ml.so.1; in a "
    "container, ask for the devices and NVIDIA_DRIVER_CAPABILITIES=utility. No matter where there "
    "are no GPUs."
)


@dataclass(frozen=True, slots=True)
class Number:
    """One number that a call returns.

    Attributes
    ----------
    metric, unit
        Of its channel.
    low, high
        What is below or above is no such number. In the call's unit.
    counter
        True for a count that only grows: the channel is its rate.
    scale
        Times this it is in the channel's unit.
    part
        Of the device that it is about: ``link3``.
    rate
        The number itself is a rate.
    """

    metric: str
    unit: str
    low: float = 0.0
    high: float = COUNT_MOST
    counter: bool = False
    scale: float = 1.0
    part: str = ""
    rate: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its numbers: `ask` returns as many."""

    numbers: tuple[Number, ...]
    ask: Callable[[], Sequence[float]]


def single(number: Number, ask: Callable[..., float], *arguments: Any) -> Call:
    """Return the call that gives one number."""
    return Call((number,), lambda: (ask(*arguments),))


Find: TypeAlias = Callable[[Nvml, Device], Iterable[Call]]
"""Says what calls a device has. What it raises is as if it were raised by all of them."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a device offers. `again`: not all is known yet."""

    calls: tuple[Call, ...]
    again: bool


@dataclass(slots=True)
class _Read:
    values: list[float] = field(default_factory=list)
    failed: int = 0
    error: Exception | None = None


class GpuSource:
    """A source that is one kind of call.

    Parameters
    ----------
    session
        Shared by all that asks NVML.
    name
        What the calls are about: the `path` is this below ``nvml``, or `NOWHERE`.
    find
        Says what calls a device has.
    period_ns
        How long a reading may serve. What costs much is read less often (`Pace`).
    background
        For calls that take so long that nobody should wait for them: a reading starts them, and
        the next tick takes the result.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        find: Find,
        *,
        period_ns: int = EVERY_TICK,
        background: bool = False,
        remedy: str = REMEDY,
    ) -> None:
        self.path = self._path = f"nvml/{name}"
        self.remedy = remedy
        self.problem = ""
        self.bad_fields = 0
        self.elsewhere_ns = 0
        self.lent_ns = 0
        self.plan = Plan()
        self._session = session
        self._find = find
        self._pace = Pace(period_ns)
        self._background = background
        self._out: Job[list[_Read | None]] | None = None
        self._out_of: Plan | None = None
        self._newest: Sequence[float] = ()
        self._devices: tuple[Device, ...] | None = None
        self._calls: dict[str, tuple[Call, ...]] = {}
        self._visits: list[Visit[_Read]] = []
        self._widths: list[int] = []
        self._lows: tuple[float, ...] = ()
        self._highs: tuple[float, ...] = ()
        self._again_ns: int | None = None
        self._tries = 0
        session.visits.join(self)

    @property
    def period_ns(self) -> int:
        """How long a reading may serve; a tick while the result of a slow one is awaited."""
        return EVERY_TICK if self._out is not None else self._pace.period_ns

    @property
    def shared(self) -> Session:
        """The session, whose devices come and go."""
        return self._session

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Ask every GPU; NaN where there is no answer."""
        session = self._session
        nvml = session.ready(reader, mono_ns)
        if nvml is None:
            self.path, self.problem = NOWHERE, f"{NOWHERE}: {session.problem}"
            return self.plan.blank
        self.path, self.problem = self._path, ""
        if session.devices is not self._devices or (
            self._again_ns is not None and mono_ns >= self._again_ns
        ):
            self._look(nvml, session.devices, mono_ns)
        if not self._visits:
            return ()
        if self._background:
            return self._read_in_background()
        answers = session.visits.ask(self, self._visits)
        self.elsewhere_ns += answers.cpu_ns
        self.lent_ns += answers.lent_ns
        self._pace.spent(sum(answers.spent_ns))
        return self._numbers(answers.results)

    def wanted(self) -> Sequence[Visit[_Read]]:
        """Return what it asks at every tick; nothing while what there is has to be found out."""
        known = self._devices is self._session.devices and self._again_ns is None
        quick = self._pace.period_ns == EVERY_TICK and not self._background
        return self._visits if known and quick else ()

    def _read_in_background(self) -> Sequence[float]:
        session, out = self._session, self._out
        if out is None:
            here = [v for v in self._visits if not session.visits.is_away(v.uuid)]
            places = [self._visits.index(v) for v in here]
            count = len(self._visits)

            def ask() -> list[_Read | None]:
                results: list[_Read | None] = [None] * count
                before = session.clock_ns()
                for place, visit in zip(places, here, strict=True):
                    results[place] = visit.ask()
                self._pace.spent(session.clock_ns() - before)
                return results

            self._out, self._out_of = Job((ask,)), self.plan
            session.visits.start(self._out)
        elif out.done:
            self._out = None
            self.elsewhere_ns += out.cpu_ns
            if out.results and self._out_of is self.plan:
                self._newest = self._numbers(out.results[0])
        if len(self._newest) != len(self.plan.fields):
            self._newest = self.plan.blank
        return self._newest

    def _look(self, nvml: Nvml, devices: tuple[Device, ...], mono_ns: int) -> None:
        """Find out what each device offers."""
        visits = [Visit(d.uuid, _Look(nvml, d, self._find, self._known(d))) for d in devices]
        looked = self._session.visits.visit(visits, self._session.patience.look).results
        again = False
        calls: dict[str, tuple[Call, ...]] = {}
        for device, result in zip(devices, looked, strict=True):
            if result is None or (result.again and not result.calls):
                # It is lost, or hangs: what channels it had stay.
                again = True
                calls[device.label] = self._calls.get(device.label, ())
            else:
                again |= result.again
                calls[device.label] = result.calls
        self._again_ns = None
        if again:
            self._again_ns = mono_ns + min(AGAIN_NS << min(self._tries, 10), AGAIN_MOST_NS)
        self._tries = self._tries + 1 if again else 0
        self._devices, self._calls = devices, calls
        here = [d for d in devices if calls[d.label]]
        self._visits = [Visit(d.uuid, _Ask(calls[d.label])) for d in here]
        numbers = [(d, n) for d in here for call in calls[d.label] for n in call.numbers]
        self._widths = [sum(len(c.numbers) for c in calls[d.label]) for d in here]
        self._lows = tuple(n.low for _, n in numbers)
        self._highs = tuple(n.high for _, n in numbers)
        plan = make_plan(numbers)
        if (plan.fields, plan.channels) != (self.plan.fields, self.plan.channels):
            self.plan = plan

    def _known(self, device: Device) -> frozenset[tuple[Number, ...]]:
        return frozenset(call.numbers for call in self._calls.get(device.label, ()))

    def _numbers(self, results: Sequence[_Read | None]) -> Sequence[float]:
        values: list[float] = []
        for width, visit, result in zip(self._widths, self._visits, results, strict=True):
            if result is None:
                values += [NAN] * width
                self.problem = f"{visit.uuid} does not answer"
                continue
            values += result.values
            if result.error is not None:
                self.bad_fields += result.failed
                self.problem = f"{self.path}: {visit.uuid}: {in_short(result.error)}"
                if is_lost(result.error):
                    self._session.lose(visit.uuid)
        try:
            if all(map(le, self._lows, values)) and all(map(ge, self._highs, values)):
                return values
        except TypeError:
            pass
        return [self._one(*number) for number in zip(values, self._lows, self._highs, strict=True)]

    def _one(self, value: float, low: float, high: float) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.inf
        if math.isnan(number) or low <= number <= high:
            return number
        self.bad_fields += 1
        return NAN


class _Look:
    """Tries every call of a device once."""

    def __init__(
        self, nvml: Nvml, device: Device, find: Find, known: frozenset[tuple[Number, ...]]
    ) -> None:
        self._nvml = nvml
        self._device = device
        self._find = find
        self._known = known

    def __call__(self) -> _Looked:
        calls: list[Call] = []
        again = False
        try:
            found = list(self._find(self._nvml, self._device))
        except Exception as e:
            return _Looked((), not is_absent(e))
        for call in found:
            try:
                call.ask()
            except Exception as e:
                if is_absent(e):
                    continue
                again = True
                if call.numbers not in self._known:
                    continue
            calls.append(call)
        return _Looked(tuple(calls), again)


class _Ask:
    """Makes every call of a device."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self._calls = [(call.ask, len(call.numbers)) for call in calls]

    def __call__(self) -> _Read:
        read = _Read()
        values = read.values
        lost = False
        for ask, width in self._calls:
            if not lost:
                try:
                    got = ask()
                    if len(got) != width:
                        raise ValueError(f"{len(got)} numbers instead of {width}")  # noqa: TRY301
                except Exception as e:
                    read.error = e
                    lost = is_lost(e)
                else:
                    values += got
                    continue
            read.failed += width
            values += [NAN] * width
        return read


def make_plan(numbers: Sequence[tuple[Device, Number]]) -> Plan:
    """Return the plan of numbers of devices, each a channel."""
    fields: list[Field] = []
    channels: list[Channel] = []
    for device, number in numbers:
        label = f"{device.label}/{number.part}" if number.part else device.label
        kind = Kind.RATE if number.counter or number.rate else Kind.GAUGE
        channel = Channel(number.metric, label, Subsystem.GPU, number.unit, kind)
        channels.append(channel)
        fields.append(Field(channel.label, number.counter, number.scale))
    return Plan(tuple(fields), tuple(channels), tuple(range(len(fields))))
