"""What every service of Interlock shares: server, health, reflection, refusals, settings, logs.

A service adds itself to a `Server`; its servicer raises `Refusal` and knows nothing of the rest.
"""

from interlock.serving.refusals import Refusal
from interlock.serving.server import CannotListenError, PortTakenError, Server, ServerSettings, run_until_stopped

__all__ = ["CannotListenError", "PortTakenError", "Refusal", "Server", "ServerSettings", "run_until_stopped"]
