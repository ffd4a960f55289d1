package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	preprocessv1 "interlock.dev/protos/preprocess/v1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// patches is one picture's patch buffer, put together from its frames.
type patches struct {
	header *preprocessv1.PatchHeader
	data   []byte
	done   bool
}

// add takes in one frame of the picture: a header, chunks, a trailer. A buffer is whole only after the trailer.
func (p *patches) add(frame *preprocessv1.PatchFrame) error {
	switch f := frame.Frame.(type) {
	case *preprocessv1.PatchFrame_Header:
		if f.Header.Dtype != preprocessv1.PatchDtype_PATCH_DTYPE_BF16 {
			return fmt.Errorf("the numbers are %s", f.Header.Dtype)
		}
		p.header = f.Header
		p.data = make([]byte, 0, f.Header.TotalBytes)
	case *preprocessv1.PatchFrame_Chunk:
		if first := uint64(f.Chunk.FirstPatch) * p.patchBytes(); first != uint64(len(p.data)) {
			return fmt.Errorf("a chunk begins at byte %d, and %d came", first, len(p.data))
		}
		p.data = append(p.data, f.Chunk.Data...)
	case *preprocessv1.PatchFrame_Trailer:
		if total := p.header.GetTotalBytes(); uint64(len(p.data)) != total {
			return fmt.Errorf("%d bytes came of %d", len(p.data), total)
		}
		if sum := crc32.Checksum(p.data, castagnoli); sum != f.Trailer.Crc32C {
			return fmt.Errorf("the CRC-32C is %08x, and the trailer says %08x", sum, f.Trailer.Crc32C)
		}
		p.done = true
	default:
		return fmt.Errorf("no frame of a picture: %v", frame)
	}
	return nil
}

// patchBytes is the size of one patch: 3 channels of patch_size x patch_size numbers of two bytes.
func (p *patches) patchBytes() uint64 {
	side := uint64(p.header.GetPatchSize())
	return 3 * side * side * 2
}

// floats reads bf16 numbers, little-endian: the upper halves of float32.
func floats(data []byte) []float32 {
	numbers := make([]float32, len(data)/2)
	for i := range numbers {
		numbers[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
	}
	return numbers
}
