"""What a client proves itself with, and whom it trusts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from interlock.client.errors import CredentialsError


@dataclass(frozen=True)
class Credentials:
    """TLS and a token. All are optional; without any of them a client speaks plain text and says nothing of itself.

    Args:
        tls: speak TLS and trust the CAs of the machine. Implied by the files.
        ca_file: CAs to trust instead (PEM).
        certificate_file: the client's certificate, for a server that asks for one (PEM).
        key_file: its private key (PEM).
        token: bearer token.
        token_file: file with the token, read again for each call, so that it may be replaced at any time.

    Raises:
        CredentialsError: only one of a pair is given, or both of an alternative.
    """

    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token: str | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise CredentialsError("certificate_file and key_file go together; only one of them is given")
        if self.token is not None and self.token_file is not None:
            raise CredentialsError("token and token_file are both given")
        self.metadata()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Credentials":
        """Those that the variables `INTERLOCK_TLS`, `INTERLOCK_CA_FILE`, `INTERLOCK_CERTIFICATE_FILE`,
        `INTERLOCK_KEY_FILE`, `INTERLOCK_TOKEN` and `INTERLOCK_TOKEN_FILE` name; empty ones do not count."""

        def file(name: str) -> Path | None:
            text = environment.get(name)
            return Path(text) if text else None

        return cls(
            tls=environment.get("INTERLOCK_TLS", "").lower() in {"1", "true", "yes", "on"},
            ca_file=file("INTERLOCK_CA_FILE"),
            certificate_file=file("INTERLOCK_CERTIFICATE_FILE"),
            key_file=file("INTERLOCK_KEY_FILE"),
            token=environment.get("INTERLOCK_TOKEN") or None,
            token_file=file("INTERLOCK_TOKEN_FILE"),
        )

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """For a channel; None: plain text.

        Raises:
            CredentialsError: a file cannot be read.
        """
        if not (self.tls or self.ca_file or self.certificate_file):
            return None
        ca, key, certificate = map(_read, (self.ca_file, self.key_file, self.certificate_file))
        return grpc.ssl_channel_credentials(ca, key, certificate)

    @property
    def has_token(self) -> bool:
        """Whether calls carry a token."""
        return self.token is not None or self.token_file is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries besides its message.

        Raises:
            CredentialsError: the token's file cannot be read or holds none.
        """
        token = self.token
        if self.token_file is not None:
            token = (_read(self.token_file) or b"").decode(errors="replace").strip()
        if token is None:
            return ()
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            where = "the token" if self.token_file is None else str(self.token_file)
            raise CredentialsError(f"{where}: a token is one word of printable ASCII characters")
        return (("authorization", f"Bearer {token}"),)


NO_CREDENTIALS = Credentials()


def _read(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{file}: {error.strerror}") from None
