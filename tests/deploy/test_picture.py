"""What is going on, folded from records that come twice and in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.picture import SILENT_US, Condition, EpisodeChanged, HostChanged, Picture
from schemas.records import EpisodeState, Record, State
from tests.deploy.examples import SECOND, T0, anomaly, odd, score

OPEN, ONGOING, CLOSED = EpisodeState.OPEN, EpisodeState.ONGOING, EpisodeState.CLOSED


def test_a_host_goes_from_learning_to_normal_and_says_so_once() -> None:
    picture = Picture()
    learning = [score(end=T0 + i * SECOND, state=State.LEARNING, progress=i / 2) for i in range(2)]
    active = [score(end=T0 + i * SECOND) for i in range(2, 4)]
    changes = [picture.apply(s, T0) for s in (*learning, *active)]
    assert changes == [
        HostChanged(learning[0], None, Condition.LEARNING),
        None,
        HostChanged(active[0], Condition.LEARNING, Condition.NORMAL),
        None,
    ]


def test_an_episode_opens_goes_on_and_closes() -> None:
    picture = Picture()
    opened, ongoing = anomaly(), anomaly(lasted_s=8, state=ONGOING)
    closed = anomaly(lasted_s=20, state=CLOSED)
    assert picture.apply(score(end=T0), T0) is not None
    assert picture.apply(opened, T0) == EpisodeChanged(opened)
    # The episode has said it: the host's next score does not say it again.
    assert picture.apply(score(end=T0 + SECOND, flagged=True), T0) is None
    assert picture.condition(picture.scores["node01"], T0) is Condition.ANOMALY
    assert picture.apply(ongoing, T0) == EpisodeChanged(ongoing)
    assert picture.open == {"node01": ongoing}
    assert picture.apply(closed, T0) == EpisodeChanged(closed)
    assert picture.apply(score(end=T0 + 21 * SECOND), T0) is None
    assert (picture.open, list(picture.closed), picture.opened) == ({}, [closed], 1)
    assert picture.condition(picture.scores["node01"], T0) is Condition.NORMAL


def test_records_that_come_again_change_nothing() -> None:
    picture = Picture()
    records: list[Record] = [
        score(),
        anomaly(),
        anomaly(lasted_s=8, state=ONGOING),
        anomaly(lasted_s=20, state=CLOSED),
    ]
    for record in records:
        assert picture.apply(record, T0) is not None
    for record in records:
        assert picture.apply(record, T0) is None
    assert (picture.opened, len(picture.closed), picture.open) == (1, 1, {})


def test_a_host_without_windows_is_silent() -> None:
    picture = Picture()
    picture.apply(anomaly(), T0)
    picture.apply(score(), T0)
    newest = picture.scores["node01"]
    assert picture.condition(newest, T0 + SILENT_US) is Condition.ANOMALY
    assert picture.condition(newest, T0 + SILENT_US + 1) is Condition.SILENT


def test_an_episode_that_nobody_can_close_ends_when_the_host_is_learned_anew() -> None:
    picture = Picture()
    picture.apply(anomaly(lasted_s=3), T0)
    picture.apply(score(end=T0 + 2 * SECOND, state=State.LEARNING), T0)
    assert "node01" in picture.open, "an old score says nothing of the episode"
    picture.apply(score(end=T0 + 4 * SECOND, state=State.LEARNING), T0)
    assert picture.open == {}


def test_an_episode_whose_teller_is_gone_ends_when_its_host_is_long_judged_without_a_word() -> None:
    picture = Picture()
    picture.apply(anomaly(lasted_s=3), T0)
    abstained = [score(end=T0 + n * SECOND, state=State.ABSTAINED) for n in range(4, 60)]
    judged = [score(end=T0 + n * SECOND, detectors=odd("z")) for n in range(60, 71)]
    for s in (*abstained, *judged[:-1]):
        picture.apply(s, T0 + 20 * SECOND)
    assert "node01" in picture.open, (
        "scores may come in long before the anomalies that go with them"
    )
    picture.apply(judged[-1], T0 + 40 * SECOND)
    assert picture.open == {}
    assert picture.condition(judged[-1], T0 + 40 * SECOND) is Condition.NORMAL


def test_a_host_whose_workload_changed_or_that_drifts_says_so() -> None:
    picture = Picture()
    states = (State.ACTIVE, State.DRIFTING, State.ACTIVE, State.RELEARNING, State.ACTIVE)
    scores = [score(end=T0 + n * SECOND, state=state) for n, state in enumerate(states)]
    changes = [picture.apply(s, T0) for s in scores]
    normal, drifting = Condition.NORMAL, Condition.DRIFTING
    relearning = Condition.RELEARNING
    told = [(c.before, c.now) for c in changes if isinstance(c, HostChanged)]
    assert told == [
        *((None, normal), (normal, drifting), (drifting, normal)),
        *((normal, relearning), (relearning, normal)),
    ]


def test_a_newer_episode_takes_the_place_of_one_that_was_never_closed() -> None:
    picture = Picture()
    picture.apply(anomaly(onset=T0), T0)
    newer = anomaly(onset=T0 + 60 * SECOND)
    picture.apply(newer, T0)
    assert (picture.open, picture.opened) == ({"node01": newer}, 2)


EPISODES = [
    record
    for host in ("a", "b")
    for onset in (T0, T0 + 100 * SECOND)
    for record in (
        anomaly(host, onset, 3),
        anomaly(host, onset, 8, ONGOING),
        anomaly(host, onset, 20, CLOSED),
    )
]


@given(st.lists(st.sampled_from(EPISODES), max_size=40))
def test_whatever_the_order_what_is_closed_stays_closed(records: list[Record]) -> None:
    picture = Picture()
    closed: set[tuple[str, int]] = set()
    for record in records:
        change = picture.apply(record, T0)
        if isinstance(change, EpisodeChanged) and change.anomaly.state is CLOSED:
            key = change.anomaly.host, change.anomaly.onset
            assert key not in closed
            closed.add(key)
        for host, episode in picture.open.items():
            assert (host, episode.onset) not in closed
            assert episode.state is not CLOSED
