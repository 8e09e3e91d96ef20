"""The core that the settings ask for, the same for the live worker and for replay."""

from __future__ import annotations

from concurrent.futures import Executor

from models.baseline import Tuning
from streams.config import WorkerSettings
from streams.layouts import Layouts
from streams.pipeline import Pipeline
from streams.score import Scoring
from streams.window import WindowSpec


def new_pipeline(
    settings: WorkerSettings, layouts: Layouts, executor: Executor, *, keep: bool = False
) -> Pipeline:
    """Return windows and scoring with these settings; baselines are fitted in `executor`.

    `keep` asks for baselines to be handed out, for the topic (`Pipeline.take_news`).
    """
    spec = WindowSpec(
        settings.window_ms * 1000, settings.stride_ms * 1000, settings.lateness_ms * 1000
    )
    scoring = Scoring(
        layouts,
        executor,
        baseline_us=settings.baseline_seconds * 1_000_000,
        stride_us=spec.stride_us,
        baseline_limit=settings.baseline_limit,
        drift_us=settings.drift_seconds * 1_000_000,
        workload_us=settings.workload_seconds * 1_000_000,
        min_share=settings.min_share,
        seed=settings.seed,
        keep=keep,
        tuning=tuning_of(settings),
    )
    return Pipeline(
        spec,
        scoring,
        keep_features=settings.publish_features,
        silence_s=settings.silence_s,
    )


def tuning_of(settings: WorkerSettings) -> Tuning:
    """Return what the settings ask of baselines."""
    return Tuning(
        mode=settings.mode,
        false_alarms_per_day=settings.false_alarms_per_day,
        stride_s=settings.stride_ms / 1e3,
        overlap=-(-settings.window_ms // settings.stride_ms) - 1,
        prune=settings.prune,
        sensitivity=settings.sensitivity,
    )
