"""`interlock demo --clients`: the client programs of `examples/clients`, built, run and judged.

Every program has the same face, which `examples/clients/README.md` describes: where the services are, a folder of
pictures, and one JSON line a step on stdout.
"""
