"""Compares this project's client for S3 with obstore behind the same operations. Prints the tables of its decision.

Needs `pip install obstore`. The server is moto, which records each request and loses answers on request.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import boto3
import obstore
from obstore.store import S3Store as ObstoreClient

from support.s3_server import ENVIRONMENT, S3Server
from tidefold.storage import open_store

SMALL, LARGE, MANY, ROUNDS = b"x" * 1_000, os.urandom(40 << 20), 300, 5
THREADS = 16


class Client(Protocol):
    """The operations that both clients offer."""

    def put(self, path: str, data: bytes) -> None: ...
    def stream(self, path: str, data: bytes) -> None: ...
    def copy(self, source: str, target: str) -> None: ...
    def list(self, folder: str) -> int: ...
    def read(self, path: str) -> bytes: ...


class Ours:
    def __init__(self, bucket: str) -> None:
        self.store: Any = open_store(f"s3://{bucket}/ours", Path("/"))

    def put(self, path: str, data: bytes) -> None:
        self.store.put_if_absent(path, data)

    def stream(self, path: str, data: bytes) -> None:
        with self.store.create(path) as stream:
            stream.write(data)

    def copy(self, source: str, target: str) -> None:
        self.store.link_unique(source, target, len(SMALL))

    def list(self, folder: str) -> int:
        return len(self.store.list(folder))

    def read(self, path: str) -> bytes:
        return bytes(self.store.read(path))


class Obstore:
    def __init__(self, bucket: str, url: str) -> None:
        self.store = ObstoreClient(
            bucket,
            prefix="obstore",
            endpoint=url,
            access_key_id="testing",
            secret_access_key="testing",
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            config={"copy_if_not_exists": "multipart"},
            retry_config={"max_retries": 3},
        )

    def put(self, path: str, data: bytes) -> None:
        obstore.put(self.store, path, data, mode="create")

    def stream(self, path: str, data: bytes) -> None:
        with obstore.open_writer(self.store, path) as stream:
            stream.write(data)

    def copy(self, source: str, target: str) -> None:
        obstore.copy(self.store, source, target, overwrite=False)

    def list(self, folder: str) -> int:
        return sum(len(page) for page in obstore.list(self.store, folder))

    def read(self, path: str) -> bytes:
        return bytes(obstore.get(self.store, path).bytes())


def kinds(server: S3Server) -> str:
    """Returns the requests since the last `heal`, such as `3 PUT, 1 POST`."""
    found = Counter(method for method, address in server.requests())
    return ", ".join(f"{count} {method}" for method, count in sorted(found.items())) or "none"


def describe(act: Callable[[], object]) -> str:
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "stored"


def compare_requests(server: S3Server, clients: dict[str, Client]) -> list[str]:
    deeds: list[tuple[str, Callable[[Client], object], tuple[str, ...]]] = [
        ("put of 1 kB", lambda c: c.put("a", SMALL), ()),
        ("the same name again", lambda c: c.put("a", SMALL), ()),
        ("put of 40 MiB", lambda c: c.put("large", LARGE), ()),
        ("40 MiB to a taken name", lambda c: c.put("large", LARGE), ()),
        ("copy inside S3", lambda c: c.copy("a", "b"), ()),
        ("copy to a taken name", lambda c: c.copy("large", "b"), ()),
        ("put, its answer is lost once", lambda c: c.put("lost", SMALL), ("PUT", "/lost")),
        ("stream of 40 MiB", lambda c: c.stream("stream", LARGE), ()),
        ("stream of 40 MiB to a taken name", lambda c: c.stream("stream", LARGE), ()),
        ("stream of 40 MiB, its last answer is lost", lambda c: c.stream("losts", LARGE), ("POST", "/losts?uploadId")),
        ("read", lambda c: c.read("a"), ()),
    ]
    lines = []
    for what, act, fault in deeds:
        cells = [what]
        for client in clients.values():
            server.heal()
            if fault:
                server.fail(*fault, lost=True)
            told = describe(lambda client=client, act=act: act(client))
            cells += [told, kinds(server)]
        lines.append(f"| {' | '.join(cells)} |")
        server.heal()
    return lines


def measure_seconds(act: Callable[[int], object], count: int, threads: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(act, range(count)))
    return time.perf_counter() - began


def compare_seconds(clients: dict[str, Client]) -> list[str]:
    found: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    for turn in range(ROUNDS):
        deeds: list[tuple[str, Callable[[Client], Callable[[int], object]], int]] = [
            (f"{MANY} puts of 1 kB", lambda c, turn=turn: lambda n: c.put(f"many/{turn}/{n}", SMALL), MANY),
            (f"{MANY} reads of 1 kB", lambda c, turn=turn: lambda n: c.read(f"many/{turn}/{n}"), MANY),
            (f"{MANY} copies", lambda c, turn=turn: lambda n: c.copy(f"many/{turn}/{n}", f"to/{turn}/{n}"), MANY),
            ("5 listings of that folder", lambda c, turn=turn: lambda n: c.list(f"many/{turn}"), 5),
            ("a put of 40 MiB", lambda c, turn=turn: lambda n: c.put(f"big/{turn}", LARGE), 1),
        ]
        for what, make, count in deeds:
            for name, client in clients.items():
                used = time.process_time()
                found.setdefault((what, name), []).append(measure_seconds(make(client), count, THREADS))
                cpu.setdefault((what, name), []).append(time.process_time() - used)
    return [_ratio_line(what, clients, found, cpu) for what in dict.fromkeys(what for what, _ in found)]


def _ratio_line(
    what: str,
    clients: dict[str, Client],
    found: dict[tuple[str, str], list[float]],
    cpu: dict[tuple[str, str], list[float]],
) -> str:
    def ratio(values: dict[tuple[str, str], list[float]]) -> str:
        ours, theirs = (values[what, name] for name in clients)
        ratios = [other / one for one, other in zip(ours, theirs, strict=True)]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

    return f"| {what} | {ratio(found)} | {ratio(cpu)} |"


def main() -> None:
    server = S3Server()
    os.environ.update({**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url})
    boto3.client("s3", endpoint_url=server.url, region_name="us-east-1").create_bucket(Bucket="bench")
    clients: dict[str, Client] = {"ours": Ours("bench"), "obstore": Obstore("bench", server.url)}
    tables: Sequence[str] = [
        "| what | ours | requests | obstore | requests |",
        "|---|---|---|---|---|",
        *compare_requests(server, clients),
        "",
        "| what | seconds, obstore / ours | CPU of the client, obstore / ours |",
        "|---|---|---|",
        *compare_seconds(clients),
    ]
    server.stop()
    print("\n".join(tables))


if __name__ == "__main__":
    main()
