"""What a person can do about each refusal, by reason."""

from collections.abc import Mapping

from interlock.reasons import Reason

ADVICE: Mapping[str, str] = {
    Reason.INVALID_FIELD: "correct the fields named above.",
    Reason.OVERLOADED: "try again later, send less at once, or raise the server's limits.",
    Reason.DRAINING: "the server is stopping; try again, so that another one answers.",
    Reason.MALFORMED_MESSAGE: "check that address and versions of both sides fit.",
    Reason.UNIMPLEMENTED: "the server does not know this call: it is older, or of another kind.",
    Reason.UNKNOWN_SERVICE: "name a service that this server has; reflection lists them.",
    Reason.UNAUTHENTICATED: "hand in `credentials` with a token or certificate that the server knows.",
    Reason.NOT_PERMITTED: "use credentials with the role and the groups that it takes.",
    Reason.INTERNAL: "this is a fault of the server: its log has the details.",
    Reason.REVISION_CONFLICT: "someone else was first. Look at `conflict`, then try again with its revision.",
    Reason.CONTRACT_MISMATCH: "start it with its group's values, or launch all ranks anew with a later instance.",
    Reason.STALE_INSTANCE: "a newer launch took over: stop this one. To go back on purpose, force a new epoch.",
    Reason.STALE_INCARNATION: "a newer process of this rank took over, or it deregistered: stop it, or start it anew.",
    Reason.NOT_READY: "start the missing ranks, or call with `wait=True` to wait for them.",
    Reason.REVISION_NOT_REACHED: "give the call more time, or look why the server does not keep up.",
    Reason.UNKNOWN_GROUP: "check the name of the group; `list_groups` gives those that are known.",
    Reason.UNKNOWN_RANK: "check the rank key, or wait until that rank has registered.",
    Reason.TOO_MANY_GROUPS: "raise the server's limit on groups, or use fewer.",
    Reason.TOO_MANY_ROOMS: "try again when older rooms have gone, or raise the server's limit on rooms.",
    Reason.STORE_UNAVAILABLE: "the server lost its store; try again, which is safe, or look at the store.",
    Reason.STORE_FULL: "make room where the server keeps its store.",
    Reason.STORE_CONTENDED: "others changed the group at the same time; try again.",
    Reason.UNKNOWN_PROFILE: "use a name that `list_profiles` gives, or hand in the profile's values.",
    Reason.INVALID_PROFILE: "correct the profile's values.",
    Reason.INVALID_PLAN: "correct the plan, or leave it out.",
    Reason.NO_LEGAL_PLAN: "the picture does not fit the profile's token budget at any size; use another profile.",
    Reason.SOURCE_TOO_LARGE: "send a smaller picture; `list_profiles` gives the limits.",
    Reason.SOURCE_LENGTH_MISMATCH: "send exactly as many bytes as the size says.",
    Reason.CREDITS_EXCEEDED: "have fewer pictures in flight at once.",
    Reason.CANCELLED: "nothing: the picture was cancelled.",
    Reason.STALLED: "keep sending: the server drops a picture of which nothing comes for a while.",
    Reason.SHARED_MEMORY_OFF: "configure the server's shared-memory folder, or ask for patches in the stream.",
    Reason.IMAGE_EMPTY: "the source has no bytes: check what was read.",
    Reason.IMAGE_UNRECOGNIZED: "send a picture in one of the supported formats.",
    Reason.IMAGE_TRUNCATED: "the file ends too early: fetch it again.",
    Reason.IMAGE_DAMAGED: "look at the file: a viewer will likely not open it either.",
    Reason.IMAGE_TOO_MANY_PIXELS: "make the picture smaller before sending it.",
}
"""One sentence for each reason of `interlock.reasons`."""
