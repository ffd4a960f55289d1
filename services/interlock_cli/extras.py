"""Optional packages: each command imports what it needs when it runs, and names the extra that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

from interlock_cli.errors import CommandError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports of a command: a package that is not installed becomes one line that names the extra.

    Raises:
        CommandError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("interlock"):
            raise
        raise CommandError(
            f"this needs {_DISTRIBUTIONS.get(package, package)}, which is not installed: "
            f"pip install 'interlock[{name}]'"
        ) from None


_DISTRIBUTIONS = {
    "PIL": "Pillow",
    "google_crc32c": "google-crc32c",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
}
"""Where a package is imported under another name than it is installed."""
