"""Pages of ListGroups: the token is the name of the last group seen, coded so that nobody builds one by hand."""

import base64
import binascii

from interlock_bootstrap.refusals import invalid_field

DEFAULT_PAGE = 100
LARGEST_PAGE = 1_000
"""As the proto says. A group's state is at most about 2 KiB, so that the largest page fits 3 MiB."""


def page_token(last_group: str) -> str:
    """The token of the page after `last_group`."""
    return base64.urlsafe_b64encode(last_group.encode()).decode()


def parse_page(token: str, size: int) -> tuple[str, int]:
    """The name after which the page begins, and how many groups it has.

    Raises:
        Refusal: INVALID_FIELD: the token is none that a page gave.
    """
    try:
        after = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid_field("page_token", "is not a `next_page_token` of this server") from None
    return after, min(size or DEFAULT_PAGE, LARGEST_PAGE)
