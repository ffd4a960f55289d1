"""Protobuf packages of `interlock.preprocess`."""
