"""Throw-away certificates to try TLS and mTLS with: a CA, a server, a client. No use where it matters: the CA's key is
forgotten at once, so nothing can be renewed."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_LEEWAY = timedelta(minutes=5)
"""Certificates are valid from a little earlier on, for machines whose clock is behind."""


class CertificateFiles(NamedTuple):
    """What was written, all PEM."""

    ca: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path


def write_dev_certificates(
    folder: Path, server_names: Sequence[str], client_name: str, lifetime: timedelta, now: datetime | None = None
) -> CertificateFiles:
    """Writes a new set into a folder, over one that is there.

    Args:
        folder: made if missing.
        server_names: host names and IP addresses that clients will call the server by.
        client_name: common name and, if it is a URI, alternative name of the client.
        lifetime: how long all are valid.
        now: when they begin. None: now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(
        *(folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key"))
    )
    begin = (now or datetime.now(UTC)) - CLOCK_LEEWAY
    times = begin, begin + CLOCK_LEEWAY + lifetime
    authority = _Authority("Interlock throw-away CA", times)
    _write(files.ca, _pem(authority.certificate), 0o644)
    alternatives = [_alternative_name(name) for name in server_names]
    for certificate, key, name, names, usage in (
        (files.server_certificate, files.server_key, server_names[0], alternatives, ExtendedKeyUsageOID.SERVER_AUTH),
        (
            files.client_certificate,
            files.client_key,
            client_name,
            [x509.UniformResourceIdentifier(client_name)] if "://" in client_name else [x509.DNSName(client_name)],
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
    ):
        private = ec.generate_private_key(ec.SECP256R1())
        _write(key, _key_pem(private), 0o600)
        _write(certificate, _pem(authority.issue(private.public_key(), name, names, usage, times)), 0o644)
    return files


class _Authority:
    def __init__(self, name: str, times: tuple[datetime, datetime]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        self.certificate = (
            _unsigned(self._name, self._name, self._key.public_key(), times)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self,
        key: ec.EllipticCurvePublicKey,
        name: str,
        alternatives: Sequence[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        times: tuple[datetime, datetime],
    ) -> x509.Certificate:
        return (
            _unsigned(_common_name(name), self._name, key, times)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, times: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(times[0])
        .not_valid_after(times[1])
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes, mode: int) -> None:
    """In one step, so that a server that reads it meanwhile sees the old or the new one."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode)
    fresh.write_bytes(content)
    fresh.replace(file)
