"""Protobuf packages of `interlock.kv`."""
