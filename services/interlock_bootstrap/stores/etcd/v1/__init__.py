"""Generated stubs of `interlock.kv.v1`; the comments are in `protos/interlock/kv/v1`."""
