"""Property tests have no deadline: how long an example takes says nothing on a machine that others use as well."""

from hypothesis import settings

settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")
