import pytest

from models import baseline, lifecycle
from schemas.errors import InvalidSettings
from schemas.settings import resolve
from streams.config import LEAST_WINDOWS, WorkerSettings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"stride_ms": 2000, "window_ms": 6000, "baseline_seconds": 30}, "fewer than 30 windows"),
        ({"window_ms": 500}, "window_ms has to be at least stride_ms"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(values: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidSettings) as e:
        resolve({"worker": WorkerSettings}, flags={"worker": values}, environ={})
    assert str(e.value).startswith("[worker] ")
    assert said in str(e.value)


@pytest.mark.parametrize(("window", "stride"), [(3000, 1000), (1500, 500), (5000, 2000)])
def test_the_papers_windows_are_taken(window: int, stride: int) -> None:
    settings = WorkerSettings.model_validate({"window_ms": window, "stride_ms": stride})
    assert settings.window_ms == window


def test_the_least_is_that_of_the_models() -> None:
    # Written down twice, since --help should not wait for what the models import.
    assert LEAST_WINDOWS == baseline.LEAST_WINDOWS
    assert lifecycle.LEAST == baseline.LEAST_WINDOWS
