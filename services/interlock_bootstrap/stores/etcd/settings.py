"""What can be set of the etcd store."""

from dataclasses import dataclass
from pathlib import Path

from interlock.serving.config import Settings, SettingsError, setting


@dataclass(frozen=True)
class EtcdSettings(Settings):
    """Where etcd is, who we are to it, and for how long it may be silent."""

    table = "etcd"
    flag_prefix = "etcd-"

    endpoints: str = setting(
        "127.0.0.1:2379",
        "Addresses of etcd's members, with commas between them: `host:port`, or `https://host:port` for TLS.",
    )
    prefix: str = setting("/interlock", "What the keys in etcd begin with; clusters that share one etcd differ in it.")
    ca_file: Path | None = setting(None, "CA that signed etcd's certificates (PEM). Not set: the CAs of the machine.")
    cert_file: Path | None = setting(None, "Our certificate for etcd (PEM), where etcd asks for one.")
    key_file: Path | None = setting(None, "Private key of `cert_file` (PEM).")
    user: str | None = setting(None, "User, where etcd asks for one.")
    password_file: Path | None = setting(None, "File with the user's password; read again whenever we log in.")
    attempt_timeout_seconds: float = setting(
        2.0, "Seconds without an answer after which a request is taken to another member.", minimum=0.1
    )
    request_timeout_seconds: float = setting(
        10.0, "Seconds that a request has over all its attempts; then it fails with STORE_UNAVAILABLE.", minimum=0.5
    )
    progress_seconds: float = setting(
        1.0, "Seconds from one proof that this replica is current to the next.", minimum=0.05
    )
    staleness_bound_seconds: float = setting(
        5.0, "Seconds that the last proof may be old; beyond them this replica is NOT_SERVING.", minimum=0.2
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.targets()
        if (self.cert_file is None) != (self.key_file is None):
            raise SettingsError("[etcd] cert_file and key_file go together")
        if (self.user is None) != (self.password_file is None):
            raise SettingsError("[etcd] user and password_file go together")
        if not self.tls and (self.ca_file or self.cert_file):
            raise SettingsError("[etcd] has TLS files, but its endpoints do not begin with https://")
        if self.staleness_bound_seconds < 2 * self.progress_seconds:
            raise SettingsError("[etcd] staleness_bound_seconds must be at least twice progress_seconds")
        if not self.prefix.strip("/"):
            raise SettingsError("[etcd] prefix must be more than slashes: the store would take all keys for its own")

    @property
    def tls(self) -> bool:
        """The endpoints speak TLS."""
        return self.endpoints.strip().startswith("https://")

    def targets(self) -> list[str]:
        """The endpoints as `host:port`.

        Raises:
            SettingsError: One is none, or some have TLS and some do not.
        """
        scheme = "https://" if self.tls else "http://"
        targets = []
        for endpoint in self.endpoints.split(","):
            target = endpoint.strip()
            if "://" in target or self.tls:
                if not target.startswith(scheme):
                    raise SettingsError(f"[etcd] endpoints: {target!r}: all must begin with {scheme} alike")
                target = target.removeprefix(scheme).rstrip("/")
            host, _, port = target.rpartition(":")
            if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
                raise SettingsError(f"[etcd] endpoints: expected `host:port`, got {target!r}")
            targets.append(target)
        return targets
