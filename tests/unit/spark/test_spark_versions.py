"""One module says what belongs to a version of Spark; one that is not supported is refused by name."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline
from tidefold.compute import spark_versions
from tidefold.compute.connect_session import ConnectServer, open_connected
from tidefold.compute.spark_versions import SPARKS, SparkFeature, find_version
from tidefold.errors import NotFoundError, RefusedError
from tidefold.spark import jars, submit

OLDER = sorted(set(SPARKS) - {"3.5"})


@pytest.fixture
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version of Spark that the environment seems to have."""
    monkeypatch.setattr(spark_versions, "find_spark", lambda: request.param)
    monkeypatch.setattr(jars, "find_spark", lambda: request.param)
    return str(request.param)


@pytest.mark.parametrize("installed", [f"{minor}.9" for minor in SPARKS], indirect=True)
def test_each_version_has_its_jars(installed: str) -> None:
    delta, s3 = jars.list_delta_jars(), jars.list_s3_jars()
    assert [jar.group for jar in delta] == ["io.delta"] * 2
    assert (s3[0].name, len(s3) > 5) == ("hadoop-aws", True)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in (*delta, *s3))
    scala, minor = ("2.12", "") if installed.startswith("3.") else ("2.13", f"_{installed[:3]}")
    assert delta[0].name == f"delta-spark{minor}_{scala}"
    assert jars.list_packages(has_client=True) == [delta[0].coordinates, s3[0].coordinates]


@pytest.mark.parametrize("installed", ["3.4.4", "4.3.0"], indirect=True)
def test_a_version_without_delta_is_refused_by_name(installed: str, tmp_path: Path) -> None:
    config = make_pipeline(tmp_path, CONFIG).config
    with pytest.raises(RefusedError, match=rf"SPARK_VERSION.*{re.escape(installed)}.*3\.5, 4\.0, 4\.1, 4\.2") as caught:
        submit.spark_conf(config)
    assert 'pip install "tidefold[spark42]"' in caught.value.hint
    assert jars.list_jars() == []


@pytest.mark.parametrize("installed", ["3.5.9"], indirect=True)
def test_spark_3_has_no_connect(installed: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"SPARK_TOO_OLD.*3\.5\.9 does not have Spark Connect") as caught:
        open_connected(ConnectServer("sc://somewhere:15002", "sc://somewhere:15002", tmp_path))
    assert "spark.master" in caught.value.hint


@pytest.mark.parametrize("installed", ["3.5.9"], indirect=True)
def test_spark_3_has_no_format(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidefold.spark.data_source", raising=False)
    with pytest.raises(NotFoundError, match=r"SPARK_TOO_OLD.*the format `tidefold`") as caught:
        import_module("tidefold.spark.data_source")
    assert "format('delta')" in caught.value.hint


def test_without_spark_it_is_the_newest() -> None:
    assert find_version("") is SPARKS["4.2"]


def test_the_spark_of_this_environment_is_supported() -> None:
    found = find_version(spark_versions.find_spark())
    assert found
    if SparkFeature.DATA_SOURCE not in found.lacks:
        assert import_module("pyspark.sql.datasource").DataSource
