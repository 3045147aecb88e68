"""Operators in Airflow write to and import from configured places only; the command line trusts its user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.pipelines import CONFIG, contents, make_pipeline
from support.savepoints import bring, make, save
from tidefold.errors import RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.restore.export import Trial, drill, restore_to

TARGETS = CONFIG.replace("store: store", "store: store\ntargets: [allowed, s3://bucket/allowed]")
ACTS: dict[str, Callable[[Pipeline, Path], object]] = {
    "restore --to": lambda pipeline, to: restore_to(pipeline, "accounts", 1, str(to)),
    "savepoint": save,
    "drill": lambda pipeline, to: drill(pipeline, "accounts", trial=Trial(str(to))),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline as an operator opens it, with a folder that it may use and a link out of that."""
    folder = tmp_path_factory.mktemp("targets")
    (folder / "allowed").mkdir()
    (folder / "allowed" / "way out").symlink_to(folder)
    return replace(make(folder, TARGETS), any_target=False)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("place", ["other", "allowed-too", "allowed/../other", "allowed/way out/other"])
def test_a_place_outside_of_the_targets_is_refused_and_left_alone(made: Pipeline, act: str, place: str) -> None:
    root = made.config.path.parent
    before = contents(root)
    with pytest.raises(RefusedError) as caught:
        ACTS[act](made, root / place)
    assert caught.value.code == "TARGET_NOT_ALLOWED"
    assert contents(root) == before


@pytest.mark.parametrize("act", ACTS)
def test_a_place_below_a_target_is_used(made: Pipeline, act: str) -> None:
    ACTS[act](made, made.config.path.parent / "allowed" / act.replace(" ", ""))


def test_a_drill_without_a_place_needs_no_target(made: Pipeline) -> None:
    assert drill(made, "accounts").status == "passed"


def test_only_from_a_target_is_imported(made: Pipeline, tmp_path: Path) -> None:
    root = made.config.path.parent
    person = replace(made, any_target=True)
    for place in ("allowed/saved", "elsewhere"):
        assert save(person, root / place).status == "saved"
    other = replace(make_pipeline(tmp_path, TARGETS.replace("allowed,", f"{root}/allowed,")), any_target=False)
    assert bring(other, root / "elsewhere").error_code == "TARGET_NOT_ALLOWED"
    assert bring(other, root / "allowed" / "saved").status == "staged"
