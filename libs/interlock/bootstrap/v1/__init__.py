"""Generated stubs of `interlock.bootstrap.v1`; the comments are in `protos/interlock/bootstrap/v1`."""
