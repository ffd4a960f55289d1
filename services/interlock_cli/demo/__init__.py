"""`interlock demo`: the main job on real input, step by step, with every statement computed from the answers."""
