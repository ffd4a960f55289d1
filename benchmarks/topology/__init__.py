"""The Bootstrap service beside the peer's registry: SGLang's compiled Rust server. `python -m benchmarks.topology`."""
