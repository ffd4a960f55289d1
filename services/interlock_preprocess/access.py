"""Who may call which method of the Preprocess service."""

from interlock.serving.access import Rule
from interlock.serving.credentials import Role

_PREPROCESS = Rule(frozenset({Role.PREPROCESS, Role.ADMIN}))

RULES = dict.fromkeys(
    (
        "PlanImages",
        "PreprocessImage",
        "PreprocessImages",
        "RegisterRegion",
        "UnregisterRegion",
        "ListRegions",
        "ListProfiles",
    ),
    _PREPROCESS,
)
"""By the method's name."""
