"""Finds out that what answers at the address of a store is no S3 server, or not with this scheme."""

from __future__ import annotations

import re
import socket
import ssl
from functools import cache
from urllib.parse import urlsplit

from tidefold.errors import StoreWrongError
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.s3.address import S3Endpoint

# obstore's words for a refusal with a text that is not S3's, and for a page instead of an answer. One that was cut
# ends too early.
_FOREIGN = re.compile(
    r"status code: ((?!408|429)4\d\d [\w -]+|501 [\w -]+): *\S|list request: .*status code: (404 [\w ]+): *$"
    r"|invalid \w+ response: (?!.*(?:end of input|Eof))|ETag Header missing"
)
_NO_HTTP, _NO_TLS, _CERTIFICATE = "Parse(", "InvalidMessage(", re.compile(r"InvalidCertificate\(\s*(\w+)")
# A server that expects TLS closes the connection, or says so in its own words.
_UNCLEAR = re.compile(r"IncompleteMessage|Parse\(|ConnectionReset|status code: 400")
_SECONDS = 3.0


def find_foreign(text: str, address: CloudAddress) -> StoreWrongError | None:
    """Returns the error if the server does not speak S3, or needs another scheme; None: it may be an S3 server.

    text: of an error without an error code of S3.
    """
    access = address.access
    if not isinstance(access, S3Endpoint) or not access.url:
        return None
    url, name = urlsplit(access.url), access.variable
    host, is_open = url.netloc.rpartition("@")[2], url.scheme == "http"
    if not is_open and _NO_TLS in text:
        return _make(
            f"What answers at `{host}` does not speak TLS.", f"Write `http://` in {name}, or correct the port."
        )
    if bad := _CERTIFICATE.search(text):
        hint = f"Name the file with the certificate of its authority in SSL_CERT_FILE, or correct the host in {name}."
        return _make(f"The certificate of `{host}` is not trusted ({bad[1]}).", hint)
    if is_open and _UNCLEAR.search(text) and speaks_tls(url.hostname or "", url.port or 80):
        return _make(f"What answers at `{host}` speaks TLS.", f"Write `https://` in {name}, or correct the port.")
    found = _FOREIGN.search(text.partition("\n\nDebug source")[0])
    if not found and _NO_HTTP not in text:
        return None
    why = (found and (found[1] or found[2])) or "it sends something else"
    hint = f"Correct {name}: it is the address of the S3 server, not of its console or of a web page.{address.doubt}"
    return _make(f"What answers at `{host}` is no S3 server ({why}).", hint)


@cache
def speaks_tls(host: str, port: int) -> bool:
    """Whether a server completes a handshake of TLS, whoever it is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _SECONDS) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _make(message: str, hint: str) -> StoreWrongError:
    return StoreWrongError("STORE_FOREIGN", message, hint=hint)
