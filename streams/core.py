"""The core that the settings ask for, the same for the live worker and for replay."""

from __future__ import annotations

from concurrent.futures import Executor

from streams.config import WorkerSettings
from streams.layouts import Layouts
from streams.pipeline import Pipeline
from streams.score import Scoring
from streams.window import WindowSpec


def new_pipeline(settings: WorkerSettings, layouts: Layouts, executor: Executor) -> Pipeline:
    """Return windows and scoring with these settings; baselines are fitted in `executor`."""
    spec = WindowSpec(
        settings.window_ms * 1000, settings.stride_ms * 1000, settings.lateness_ms * 1000
    )
    scoring = Scoring(
        layouts,
        executor,
        baseline_us=settings.baseline_seconds * 1_000_000,
        stride_us=spec.stride_us,
        min_share=settings.min_share,
        seed=settings.seed,
    )
    return Pipeline(
        spec,
        scoring,
        keep_features=settings.publish_features,
        silence_s=settings.silence_s,
    )
