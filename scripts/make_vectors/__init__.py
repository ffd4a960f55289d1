"""Makes the files in `vectors/`: what a client in any language must agree on, as the reference gives it.

    python -m scripts.make_vectors            # write them
    python -m scripts.make_vectors --check    # fail if the tree has others

Run from the repository's root. The same sources give the same bytes, so a change of the contract shows there.
"""
