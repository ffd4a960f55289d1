"""The repository's checkout, which holds what an installed `interlock` has not: the programs and the pictures."""

from dataclasses import dataclass
from pathlib import Path

_AROUND_THIS_FILE = Path(__file__).resolve().parents[4]


class NoCheckoutError(Exception):
    """There is no checkout here."""


@dataclass(frozen=True)
class Checkout:
    """The repository, at `root`."""

    root: Path

    @property
    def clients(self) -> Path:
        """A folder for each language's program."""
        return self.root / "examples" / "clients"

    @property
    def corpus(self) -> Path:
        """Small pictures, whole and damaged."""
        return self.root / "tests" / "data" / "corpus"

    @property
    def patches(self) -> Path:
        """The vectors that say what must come of them."""
        return self.root / "vectors" / "patches.json"


def find_checkout(start: Path | None = None) -> Checkout:
    """The checkout that this package runs from, or else the one around a folder.

    Args:
        start: Where to look, upwards; the current folder if None.

    Raises:
        NoCheckoutError: There is none.
    """
    start = (start or Path.cwd()).resolve()
    for root in (_AROUND_THIS_FILE, start, *start.parents):
        checkout = Checkout(root)
        if checkout.clients.is_dir() and checkout.corpus.is_dir():
            return checkout
    raise NoCheckoutError(
        "the client programs are not part of an installed interlock: clone its repository and run this inside it"
    )
