"""What `make cluster` starts with: the S3 server's program, and a proxy that tests put before it."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.proxy import S3Proxy
from local_airflow.errors import LocalAirflowError
from local_cluster import versitygw


def say(line: str) -> None:
    return


def test_without_go_the_command_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versitygw, "TOOLS", tmp_path)
    monkeypatch.delenv("VERSITYGW", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalAirflowError, match=r"no `go` on the PATH.* VERSITYGW"):
        versitygw.fetch_program(say)


def test_a_program_that_is_named_and_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERSITYGW", str(tmp_path / "nowhere"))
    with pytest.raises(LocalAirflowError, match="nowhere, which does not exist"):
        versitygw.fetch_program(say)


def test_a_program_that_was_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / f"versitygw-{versitygw.VERSION}" / "versitygw"
    built.parent.mkdir()
    built.touch()
    monkeypatch.setattr(versitygw, "TOOLS", tmp_path)
    monkeypatch.delenv("VERSITYGW", raising=False)
    assert versitygw.fetch_program(say) == built


def test_the_proxy_passes_on_refuses_and_leaves() -> None:
    behind = S3Proxy("http://127.0.0.1:9")
    behind.busy = True
    proxy = S3Proxy(behind.url)
    try:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{proxy.url}/bucket/key")
        assert (proxy.passed, proxy.refused, behind.refused) == (1, 0, 1)
        proxy.busy = True
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{proxy.url}/bucket/key", b"body")
        assert (proxy.passed, proxy.refused) == (1, 1)
        url = proxy.url
        proxy.leave()
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(url)
        proxy.listen()
        assert proxy.url == url
    finally:
        proxy.leave()
        behind.leave()
