"""Interlock: the control plane and image front of prefill/decode-disaggregated LLM serving.

What you import:

- `interlock.client`: the SDK, asynchronous and synchronous.
- `interlock.pools`: KV pool names between the proto enum and the wire.
- `interlock.topology`: the rules of registration, as pure functions over frozen values.
- `interlock.vision`: profiles, plans, decoding and kernels that turn pictures into bf16 patches.
- `interlock.serving`: what every service shares.
- `interlock.kv.v1`, `interlock.bootstrap.v1`, `interlock.preprocess.v1`: generated stubs.
"""

__version__ = "0.2.0"
