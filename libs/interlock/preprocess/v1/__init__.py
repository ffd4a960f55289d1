"""Generated stubs of `interlock.preprocess.v1`; the comments are in `protos/interlock/preprocess/v1`."""
