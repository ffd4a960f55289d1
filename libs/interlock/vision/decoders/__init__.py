"""Decoders that are faster than Pillow where they give Pillow's very pixels. Pillow judges everything else.

Each takes a picture that Pillow has opened, so that its header is read, bounded and accepted by Pillow alone, and
returns the pixels, or None: then Pillow decodes the file, and its pixels or its refusal are the answer. So a decoder
here need not tell damage from what it merely does not do; it only must never give pixels where Pillow refuses, nor
other ones. docs/decisions/decoding.md has the measurements.
"""
