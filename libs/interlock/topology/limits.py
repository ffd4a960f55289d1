"""Bounds on what a group may hold and on what a request may carry.

Every value from outside is held against these before it costs memory or time.
"""

MAX_RANKS = 65_536
"""Ranks of one group: the largest product of its parallel sizes, and so the most routes it can have."""

MAX_GROUP_BYTES = 63
"""A group name is a DNS label."""

MAX_INSTANCE_ID_BYTES = 128
"""Id of an instance, printable ASCII."""

MAX_STRING_BYTES = 256
"""Any other text field of a route, as UTF-8."""

MAX_HOST_NAME_BYTES = 253
"""A host name by RFC 1123."""

MAX_CLOCK_LEAD_NS = 60 * 1_000_000_000
"""How far an instance may be stamped ahead of the server's clock."""

MIN_LEASE_TTL_MS = 1_000
MAX_LEASE_TTL_MS = 24 * 3_600 * 1_000
"""How long a lease may be: not so short that one lost renewal ends it, not so long that a dead rank stays for days."""

MAX_RENEWALS = 1_024
"""Leases that one message may renew."""

MAX_LAYOUT_BYTES = 64 * 1024
"""A serialised `SpecLayout`; a larger message is not even converted."""

MAX_LAYOUT_NUMBERS = 4_096
"""Numbers in all lists of a layout together; published layouts have about a thousand."""

MAX_STATE_TYPES = 64
"""Kinds of state in a layout."""

MAX_EXTRA_JSON_KEYS = 64
"""Keys of a layout that this version does not know."""

MAX_EXTRA_JSON_LENGTH = 16 * 1024
"""Characters of all keys and texts of `extra_json` together."""

MAX_JSON_DEPTH = 32
"""Nesting of one `extra_json` text."""

MAX_LISTED_KEYS = 64
"""Rank keys listed in a `GroupState`; the counts beside the lists are whole."""

MAX_UINT32 = 2**32 - 1
MAX_UINT64 = 2**64 - 1
