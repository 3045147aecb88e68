"""Certificates of an authority of the tests' own: for a server on 127.0.0.1, and for a client."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates. `pem`: its own certificate."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("the tests' authority")
        self._certificate = self._sign(self._name, self._key.public_key(), is_authority=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str) -> tuple[str, str]:
        """Returns a private key and its certificate, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(name), key.public_key(), is_authority=False)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        secret = key.private_bytes(serialization.Encoding.PEM, *form).decode()
        return secret, certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool) -> x509.Certificate:
        begin = datetime.now(UTC) - timedelta(days=1)
        places = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = x509.CertificateBuilder(self._name, name, key, x509.random_serial_number()).not_valid_before(begin)
        builder = builder.not_valid_after(begin + timedelta(days=30)).add_extension(places, critical=False)
        basic = x509.BasicConstraints(ca=is_authority, path_length=None)
        return builder.add_extension(basic, critical=True).sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
