"""What agent and worker say of themselves becomes what is shown."""

from __future__ import annotations

from deploy.health import Recent, parse
from deploy.status import Part, Stack, describe

AGENT = """\
reveal_agent_channels 678
reveal_agent_ticks_total {ticks}
reveal_agent_missed_ticks_total {missed}
reveal_agent_collector_errors_total{{collector="cpu"}} 1
reveal_agent_collector_bad_fields_total{{collector="cpu"}} 3
"""
WORKER = """\
reveal_worker_windows_total{{state="learning"}} {learned}
reveal_worker_windows_total{{state="active"}} 30
reveal_worker_lag_records 4
reveal_worker_latency_seconds_bucket{{le="0.1"}} {fast}
reveal_worker_latency_seconds_bucket{{le="+Inf"}} {fast}
reveal_worker_dropped_ticks_total{{reason="late"}} 2
"""


def recent(page: str, *scrapes: dict[str, int]) -> Recent:
    made = Recent()
    for i, values in enumerate(scrapes):
        made.add(i * 10.0, parse(page.format(**values)))
    return made


def test_flow_losses_and_notes() -> None:
    stack = Stack("", embedded=True, parts=(Part("broker"), Part("agent"), Part("worker")))
    agent = recent(AGENT, {"ticks": 100, "missed": 5}, {"ticks": 200, "missed": 6})
    worker = recent(WORKER, {"learned": 20, "fast": 0}, {"learned": 40, "fast": 10})
    view = recent("unreadable {count}\n", {"count": 0}, {"count": 2})
    describe(stack, agent=agent, worker=worker, view=view)
    assert (stack.windows, stack.windows_per_s, stack.lag_records) == (70, 2.0, 4)
    assert (stack.latency_p50_s, stack.latency_p99_s) == (0.05, 0.099)
    assert [part.note for part in stack.parts] == ["", "678 channels at 10.0/s", ""]
    assert stack.trouble == (
        "1 tick missed by the agent in the last minute",
        "2 messages unreadable and not shown here in the last minute",
    )
    assert stack.losses == (
        "6 ticks missed by the agent",
        "1 reading failed",
        "3 fields left empty, not being numbers",
        "2 ticks dropped by the worker",
        "2 messages unreadable and not shown here",
    )


def test_what_does_not_answer_is_not_known() -> None:
    stack = Stack("", embedded=True, parts=(Part("agent"),))
    describe(stack, agent=Recent(), worker=Recent(), view=Recent())
    assert (stack.windows_per_s, stack.lag_records, stack.latency_p50_s) == (None, None, None)
    assert (stack.trouble, stack.losses, stack.parts[0].note) == ((), (), "")
