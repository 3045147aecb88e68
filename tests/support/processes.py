"""Processes of tests, forked from one that has loaded everything and opened nothing: what they import costs once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
FORK = multiprocessing.get_context("fork")


def alone(act: Callable[..., T], *arguments: Any) -> T:
    """Acts in a fresh process, since nothing can be forked from one that has read a Delta table."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(act, *arguments).result()
