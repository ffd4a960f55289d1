"""TLS of a server: certificates from files, which new connections get anew when the files have changed.

Connections that are open live on with what they began with. gRPC speaks TLS 1.2 and 1.3, nothing older.
"""

import logging
import os
import ssl
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import grpc

from interlock.serving.config import Settings, SettingsError, setting

_LOGGER = logging.getLogger(__name__)


class BadCertificateError(Exception):
    """A certificate, key or CA cannot be used; the message names the file and why."""


@dataclass(frozen=True)
class TlsSettings(Settings):
    """Files of PEM text. Without a certificate the server speaks plain text."""

    table: ClassVar[str] = "tls"
    flag_prefix: ClassVar[str] = "tls-"

    certificate_file: Path | None = setting(
        None, "The server's certificate and those between it and its CA (PEM). Read again when it changes."
    )
    key_file: Path | None = setting(None, "The private key of that certificate (PEM, not encrypted).")
    client_ca_file: Path | None = setting(
        None, "CAs of client certificates (PEM). When set, callers without such a certificate are not let in (mTLS)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.certificate_file is None) != (self.key_file is None):
            raise SettingsError("[tls] certificate_file and key_file go together; only one of them is set")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise SettingsError("[tls] client_ca_file is set, but no certificate_file: mTLS needs both")


class ServerCertificates:
    """What a server shows, and whom it lets in.

    Args:
        settings: with a certificate.

    Raises:
        BadCertificateError: a file cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        assert settings.certificate_file is not None
        assert settings.key_file is not None
        self._certificate, self._key, self._ca = settings.certificate_file, settings.key_file, settings.client_ca_file
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._shown = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """For the port to listen on."""
        return grpc.dynamic_ssl_server_credentials(
            self._shown,
            self._for_a_new_connection,  # type: ignore[arg-type]  # None is "no change", which the stub does not know
            require_client_authentication=self._ca is not None,
        )

    def _for_a_new_connection(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC asks for it in a thread of its own before each handshake. None: the same as before.

        A change that cannot be used, such as a certificate whose key is still to be written, is no reason to stop:
        what was there before goes on being shown, and the next connection looks again.
        """
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            self._seen = stamp
            try:
                self._shown = self._load()
            except BadCertificateError as error:
                _LOGGER.error("the certificates changed and cannot be used, the old ones stay: %s", error)
                return None
            _LOGGER.info("certificates were read again", extra={"certificate_file": str(self._certificate)})
            return self._shown

    def _stamp(self) -> tuple[object, ...]:
        """Differs when one of the files was written or replaced."""
        return tuple(_stamp_of(path) for path in (self._certificate, self._key, self._ca) if path is not None)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        check_pair(self._certificate, self._key)
        if self._ca is not None:
            check_ca(self._ca)
        return grpc.ssl_server_certificate_configuration(
            [(_read(self._key), _read(self._certificate))], _read(self._ca) if self._ca is not None else None
        )


def check_pair(certificate: Path, key: Path) -> None:
    """
    Raises:
        BadCertificateError: the files cannot be read, do not belong together, or the certificate's time has not come or
            is over.
    """
    _read(certificate)
    _read(key)

    def no_password() -> str:
        raise BadCertificateError(f"{key}: the private key is encrypted; write it without a password")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadCertificateError(f"{key}: this is not the private key of {certificate}") from None
        raise BadCertificateError(f"{certificate}, {key}: no certificate and private key in PEM: {error}") from None
    _check_times(certificate)


def check_ca(file: Path) -> None:
    """
    Raises:
        BadCertificateError: the file cannot be read or holds no CA certificate whose time it is.
    """
    _read(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise BadCertificateError(f"{file}: no CA certificates in PEM: {error}") from None
    _check_times(file)


def _check_times(file: Path) -> None:
    from cryptography import x509  # only who uses TLS loads it

    now = datetime.now(UTC)
    for certificate in x509.load_pem_x509_certificates(_read(file)):
        name = certificate.subject.rfc4514_string()
        if now > certificate.not_valid_after_utc:
            raise BadCertificateError(f"{file}: {name} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
        if now < certificate.not_valid_before_utc:
            raise BadCertificateError(
                f"{file}: {name} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; "
                "is this machine's clock right?"
            )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadCertificateError(f"{file}: {error.strerror}") from None


def _stamp_of(file: Path) -> object:
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
