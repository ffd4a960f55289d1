"""Vectors in LLVM's portable IR: the operations that the inner loops are put together from.

A vector has the same lanes on every machine; LLVM cuts it to the registers there are. One operation is named by its
instruction on x86-64, for LLVM does not find it by itself (`add_products_of_pairs`); elsewhere it is spelled out.

Nothing here checks a bound, and loads and stores are of any alignment: who puts an inner loop together says in its
docstring which bytes it touches, and who calls it argues that these are there.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext

from interlock.vision.kernels.simd.compiling import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()

FRACTION_BITS = 22
"""Of the weights, as in Pillow: 32 - 8 - 2."""


def integer(value: int) -> ir.Constant:
    """An offset or count."""
    return ir.Constant(I64, value)


def lanes(kind: ir.Type, count: int, value: float) -> ir.Constant:
    """The same constant in all lanes."""
    return ir.Constant(ir.VectorType(kind, count), [ir.Constant(kind, value)] * count)


def address(context: BaseContext, b: ir.IRBuilder, of: object, array: ir.Value, at: ir.Value) -> ir.Value:
    """Where element `at` of a numba array lies; `of` is the array's numba type."""
    return b.gep(context.make_array(of)(context, b, array).data, [at])


def load(b: ir.IRBuilder, where: ir.Value, kind: ir.Type, count: int) -> ir.Value:
    """A vector from memory at any alignment."""
    loaded = b.load(b.bitcast(where, ir.VectorType(kind, count).as_pointer()))
    loaded.align = 1
    return loaded


def store(b: ir.IRBuilder, vector: ir.Value, where: ir.Value) -> None:
    """A vector to memory at any alignment."""
    b.store(vector, b.bitcast(where, vector.type.as_pointer())).align = 1


def splat(b: ir.IRBuilder, value: ir.Value, count: int) -> ir.Value:
    """One value in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = b.insert_element(nothing, value, ir.Constant(I32, 0))
    return shuffle(b, first, nothing, [0] * count)


def shuffle(b: ir.IRBuilder, one: ir.Value, other: ir.Value, order: Sequence[int]) -> ir.Value:
    """Lanes of two vectors in a new order; those of `other` are counted on from those of `one`."""
    picked = ir.Constant(ir.VectorType(I32, len(order)), [ir.Constant(I32, lane) for lane in order])
    return b.shuffle_vector(one, other, picked)


def part(b: ir.IRBuilder, vector: ir.Value, first: int, count: int) -> ir.Value:
    """Some neighbouring lanes of a vector."""
    return shuffle(b, vector, vector, range(first, first + count))


def transposed_words(b: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose 8 rows of words (16 bits), each 16 bytes of the rows by themselves.

    Args:
        b: where to put it.
        rows: 8 vectors <8n x i16>.

    Returns:
        8 vectors: word `8 * i + r` of vector `j` is word `8 * i + j` of row `r`.
    """
    # A perfect shuffle of vectors i and i + 4 moves one bit of the number of the row to the number of the word; after
    # three, both have changed places. It never crosses 16 bytes, where x86-64 has it as one instruction (punpck).
    count = rows[0].type.count
    low = [lane + word + row * count for lane in range(0, count, 8) for word in range(4) for row in range(2)]
    high = [lane + 4 for lane in low]
    vectors = list(rows)
    for _ in range(3):
        pairs = list(zip(vectors[:4], vectors[4:], strict=True))
        vectors = [shuffle(b, one, other, order) for one, other in pairs for order in (low, high)]
    return vectors


def add_products_of_pairs(
    context: BaseContext, b: ir.IRBuilder, total: ir.Value, values: ir.Value, weights: ir.Value
) -> ir.Value:
    """total[i] + values[2i] * weights[2i] + values[2i+1] * weights[2i+1], modulo 2**32.

    Args:
        context: numba's; tells the machine.
        b: where to put it.
        total: <16 x i32>.
        values, weights: <32 x i16>, signed.
    """
    width = _widest_multiply_add(context)
    if width == 0:
        even, odd = (
            b.mul(*(b.sext(shuffle(b, v, v, range(first, 32, 2)), total.type) for v in (values, weights)))
            for first in (0, 1)
        )
        return b.add(total, b.add(even, odd))
    name = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}[width]
    words = ir.VectorType(I16, 2 * width)
    function = b.module.declare_intrinsic(name, fnty=ir.FunctionType(ir.VectorType(I32, width), [words, words]))
    pieces = [
        b.call(function, [part(b, v, first, 2 * width) for v in (values, weights)]) for first in range(0, 32, 2 * width)
    ]
    while len(pieces) > 1:
        pieces = [
            shuffle(b, one, other, range(2 * one.type.count))
            for one, other in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return b.add(total, pieces[0])


def _widest_multiply_add(context: BaseContext) -> int:
    """Lanes of 32 bits that the machine multiplies and adds pairs into at once; 0: it has no such instruction."""
    machine, _, features = context.codegen().magic_tuple()
    if not machine.startswith("x86_64"):
        return 0
    if "+avx512bw" in features:
        return 16
    return 8 if "+avx2" in features else 4


def clipped(b: ir.IRBuilder, total: ir.Value) -> ir.Value:
    """What a sum of weighted bytes comes to: without its fraction, 0 to 255. <n x i32>."""
    count = total.type.count
    zero, most = lanes(I32, count, 0), lanes(I32, count, 255)
    value = b.ashr(total, lanes(I32, count, FRACTION_BITS))
    value = b.select(b.icmp_signed(">", value, zero), value, zero)
    return b.select(b.icmp_signed("<", value, most), value, most)


def sums_of_weighted_pairs(
    context: BaseContext,
    b: ir.IRBuilder,
    source: ir.Value,
    plane: ir.Value,
    step: ir.Value,
    weights: ir.Value,
    pairs: ir.Value,
) -> list[ir.Value]:
    """The loop that all of the resize comes down to: 16 sums of weighted bytes in each of 3 channels.

    A weight has up to 25 bits, and the machine multiplies words of 16 and adds two products in one instruction. So taps
    go in pairs, and a weight goes as its lower and its upper word, both signed, which are summed apart and put together
    in the end. Modulo 2**32 that is the sum that Pillow has, and Pillow's sums fit 32 bits.

    Args:
        context: numba's.
        b: where to put it; a loop, so that the code after it is in another block.
        source: bytes; 32 are read at `source + channel * plane + pair * step`: [lane][first, second tap of the pair].
        plane, step: in bytes.
        weights: int32; two are read a pair: the lower words of the weights of both taps, and their upper words.
        pairs: how many pairs, at least 1. The same for all positions of an axis (`Axis.pairs`), so that no branch is
            mispredicted, and one load of a weight serves three channels.

    Returns:
        For each channel a <16 x i32> with 22 fractional bits and a half added, to round.
    """
    words = ir.VectorType(I16, 32)
    entry, loop, done = b.block, b.append_basic_block("pairs"), b.append_basic_block("summed")
    channels = [b.gep(source, [b.mul(plane, integer(channel))]) for channel in range(3)]
    b.branch(loop)
    b.position_at_end(loop)
    pair = b.phi(I64)
    totals = [[b.phi(ir.VectorType(I32, 16)) for _ in channels] for _ in range(2)]  # of lower, of upper words
    values = [b.zext(load(b, b.gep(channel, [b.mul(pair, step)]), I8, 32), words) for channel in channels]
    sums = []
    for word, start in enumerate((1 << (FRACTION_BITS - 1), 0)):
        weight = b.load(b.gep(weights, [b.add(b.shl(pair, integer(1)), integer(word))]))
        both = b.bitcast(splat(b, weight, 16), words)
        after = [add_products_of_pairs(context, b, *some, both) for some in zip(totals[word], values, strict=True)]
        for total, total_after in zip(totals[word], after, strict=True):
            total.add_incoming(lanes(I32, 16, start), entry)
            total.add_incoming(total_after, loop)
        sums.append(after)
    following = b.add(pair, integer(1))
    pair.add_incoming(integer(0), entry)
    pair.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, pairs), loop, done)
    b.position_at_end(done)
    return [b.add(lower, b.shl(upper, lanes(I32, 16, 16))) for lower, upper in zip(*sums, strict=True)]


def store_bytes(b: ir.IRBuilder, sums: Sequence[ir.Value], where: ir.Value) -> None:
    """What the sums come to, as bytes: [channel][16 lanes]."""
    for channel, total in enumerate(sums):
        values = b.trunc(clipped(b, total), ir.VectorType(I8, 16))
        store(b, values, b.gep(where, [integer(channel * 16)]))


def store_codes(b: ir.IRBuilder, values: Sequence[ir.Value], affine: ir.Value, width: int, where: ir.Value) -> None:
    """Bytes of 3 channels, <16 x i32> each, as bfloat16 codes: the first `width` (14 or 16), and not a byte more.

    Args:
        b: where to put it.
        values: of each channel.
        affine: float32[2, 3]; see `interlock.vision.kernels.simd.codes`.
        width: the patch size; so channels are `width * width` words apart.
        where: of words; one row of a patch.
    """
    for channel, value in enumerate(values):
        factor, term = (splat(b, b.load(b.gep(affine, [integer(channel + 3 * n)])), 16) for n in (0, 1))
        single = b.fadd(b.fmul(b.sitofp(value, ir.VectorType(F32, 16)), factor), term)
        bits = b.add(b.bitcast(single, value.type), lanes(I32, 16, 1 << 15))
        codes = b.trunc(b.lshr(bits, lanes(I32, 16, 16)), ir.VectorType(I16, 16))
        here = b.gep(where, [integer(channel * width * width)])
        if width == 16:
            store(b, codes, here)
        else:  # two stores that overlap: what lies behind the row may be another thread's
            store(b, part(b, codes, 0, 8), here)
            store(b, part(b, codes, width - 8, 8), b.gep(here, [integer(width - 8)]))


@intrinsic
def move(typing: Any, array: Any, to: Any, at: Any, count: Any) -> Any:
    """Move `count` bytes inside an array; the two places may overlap. A loop in its place would go byte by byte."""
    signature = types.void(array, types.int64, types.int64, types.int64)

    def generate(context: Any, b: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        array, to, at, count = arguments
        target, source = (address(context, b, signature.args[0], array, place) for place in (to, at))
        cgutils.raw_memmove(b, target, source, count, 1)
        return context.get_dummy_value()

    return signature, generate
