"""Bounds that hold before anything is decoded, allocated or computed. All arithmetic on them is in wide integers."""

MAX_PIXELS = 178_956_970
"""Most pixels that a source may have: where Pillow itself refuses, and 512 MiB of RGB."""

MAX_SIDE = 2**32 - 1
"""Longest side of a picture in pixels; sizes travel as uint32."""

MAX_INTERMEDIATE_BYTES = 512 * 2**20
"""Most bytes of a picture after the horizontal pass, source_height * resize_width * 3: any source as wide as it was."""

MAX_OUTPUT_BYTES = 256 * 2**20
"""Most bytes of a patch buffer: the largest token budget at patch size 14 and downsample ratio 3 takes 173 MB."""

PATCH_SIZE_RANGE = (1, 128)
DOWNSAMPLE_RATIO_RANGE = (1, 16)
MAX_IMAGE_TOKENS_RANGE = (4, 16_384)
MAX_WH_RATIO_RANGE = (1, 1_000)

IMAGE_MEAN_RANGE = (0.0, 1.0)
"""Means are in units of full scale."""

IMAGE_STD_RANGE = (2**-10, 2.0**10)
"""Wide enough for any published model, narrow enough that every quantised value is finite."""
