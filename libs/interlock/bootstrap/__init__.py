"""Protobuf packages of `interlock.bootstrap`."""
