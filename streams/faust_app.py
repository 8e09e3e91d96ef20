"""A Faust app that survives what Faust and aiokafka do not.

Three mends, each for a fault that was reproduced:

- aiokafka parks a group member for ever after a fatal JoinGroup or SyncGroup error
  (aiokafka#294, faust-streaming#175): a task asks its coordinator for the error twice a
  second, which lets it start over. A member that still is in no group after `NO_GROUP_S`
  ends the process.
- Faust waits 1.5 s in every fetch, a constant in its source, so that a second of latency would
  be the rule: here the wait is `FETCH_WAIT_MS`.
- a crash inside an agent restarts the agent without what it held (faust-streaming#315): here
  the process ends, and whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, cast

import faust
from aiokafka.errors import KafkaError
from faust.transport.drivers import aiokafka as driver

CHECK_S = 0.5
NO_GROUP_S = 30.0
FETCH_WAIT_MS = 50
NO_GENERATION = -1


def die(reason: str) -> NoReturn:
    """End the process now, as a crash would: the log is read again from what was acknowledged."""
    sys.stderr.write(f"reveal worker: {reason}\n")
    if sys.exc_info()[0] is not None:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """Consumer thread with a short fetch wait and a task that looks after the group."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        self._guard = self.thread_loop.create_task(self._look_after_group())

    async def on_thread_stop(self) -> None:
        self._guard.cancel()
        await super().on_thread_stop()

    def verify_event_path(self, now: float, tp: Any) -> None:
        # Where the broker has dropped what was to be read next, aiokafka has no position until
        # it has looked for one, which Faust's check for a livelock does not expect.
        with contextlib.suppress(AssertionError):
            super().verify_event_path(now, tp)

    async def _look_after_group(self) -> None:
        loop = asyncio.get_running_loop()
        in_group = loop.time()
        while True:
            await asyncio.sleep(CHECK_S)
            coordinator = getattr(self._consumer, "_coordinator", None)
            if coordinator is None:
                continue
            try:
                coordinator.check_errors()
            except KafkaError as e:
                sys.stderr.write(f"reveal worker: group error, joining again: {e!r}\n")
                cast(App, self.app).on_group_error()
            except AttributeError:
                continue  # a coordinator of manual assignment, before the subscription
            if coordinator.generation != NO_GENERATION and not coordinator.need_rejoin():
                in_group = loop.time()
            elif loop.time() - in_group > NO_GROUP_S:
                die(f"in no consumer group for {NO_GROUP_S:.0f} s: is the broker reachable?")


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> Any:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(driver.Transport):
    Consumer = _Consumer


class App(faust.App):
    """`faust.App` with the mends above; `on_group_error` is called for each one healed."""

    on_group_error: Callable[[], None]

    def _new_transport(self) -> Any:
        return _Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Keep out of the file system: Faust would make a folder for tables we do not have."""
