"""What listing a landing prefix in S3 costs: requests, seconds and memory, in one chain and in ranges of names.

`make bench-listing` prints a Markdown table and writes it to listing.md. The server has no objects: it
makes the pages of 1,000 names that S3 would send, each after `DELAY` seconds, so a million costs no disk.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

from tables import machine, write_page

_PAGE, _DELAY = 1000, 0.1
_OBJECT = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-01T08:00:00.000Z</LastModified>"
    '<ETag>"d41d8cd98f00b204e9800998ecf8427e"</ETag><Size>1000</Size><StorageClass>STANDARD</StorageClass></Contents>'
)


def name_of(number: int) -> str:
    """A name as a sink with daily folders gives it."""
    return f"day={number // 2880:05d}/part-{number:08d}.json"


def main(sizes: Sequence[int]) -> None:
    lines = ["| objects | way | requests | seconds | of them this process computes |", "|---|---|---|---|---|"]
    for size in sizes:
        server = subprocess.Popen([sys.executable, __file__, "serve", str(size)], stdout=subprocess.PIPE, text=True)
        assert server.stdout
        url = server.stdout.readline().strip()
        try:
            next(iter(_files(url)))  # Loads the client.
            urllib.request.urlopen(f"{url}/-count").close()
            for way, known in (("one chain", 0), ("ranges", size)):
                begun, busy = time.perf_counter(), time.process_time()
                found = _list(url, known)
                seconds, worked = time.perf_counter() - begun, time.process_time() - busy
                assert found == size
                requests = int(urllib.request.urlopen(f"{url}/-count").read())
                lines.append(f"| {size:,} | {way} | {requests:,} | {seconds:,.1f} | {worked:,.1f} |")
                print(lines[-1], flush=True)
        finally:
            server.kill()
    head = [
        "# Listing a landing prefix in S3", "",
        f"`make bench-listing`. {machine()} Load of the machine: {os.getloadavg()[0]:.0f}. Each answer takes "
        f"{_DELAY * 1000:.0f} ms, and has 1,000 names. *One chain* is the listing of a new log. *Ranges* is that of a "
        "log that has ingested all of these files: it cuts the prefix at known names and lists up to 8 parts at once. "
        "Both list every name.", "",
    ]  # fmt: skip
    write_page("listing.md", [*head, *lines])


def _list(url: str, known: int) -> int:
    return sum(1 for _ in _files(url, [name_of(number) for number in range(known)]))


def _files(url: str, known: Sequence[str] = ()) -> Iterator[object]:
    from tidefold.sources.landing.folders import folder_at

    os.environ |= {
        "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    return folder_at("s3://landing/orders").list_files(known)


def serve(size: int) -> None:
    import asyncio

    from aiohttp import web

    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        if request.path == "/-count":
            told, asked = asked, 0
            return web.Response(text=str(told))
        asked += 1
        await asyncio.sleep(_DELAY)
        query = {key: values[0] for key, values in parse_qs(urlsplit(str(request.raw_path)).query).items()}
        after = query.get("continuation-token") or query.get("start-after", "").removeprefix("orders/")
        found = re.search(r"part-(\d+)", after)
        begin = int(found[1]) + 1 if found else 0
        end = min(begin + _PAGE, size)
        keys = "".join(_OBJECT.format(key=f"orders/{name_of(number)}") for number in range(begin, end))
        token = f"<NextContinuationToken>{name_of(end - 1)}</NextContinuationToken>" if end < size else ""
        body = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>landing</Name><IsTruncated>{str(end < size).lower()}</IsTruncated>{token}{keys}</ListBucketResult>"
        )
        return web.Response(text=body, content_type="application/xml")

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.sleep(3600)

    asyncio.run(run())


if __name__ == "__main__":
    serve(int(sys.argv[2])) if sys.argv[1:2] == ["serve"] else main(
        [int(size) for size in sys.argv[1:]] or [10_000, 100_000]
    )
