package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	preprocessv1 "interlock.dev/protos/preprocess/v1"
)

// numbers are bf16 numbers with what they are. Every bf16 number is a float32.
type numbers struct {
	Hex    string    `json:"hex"`
	Values []float32 `json:"values"`
}

func TestBF16NumbersAreReadExactly(t *testing.T) {
	for name, n := range load[map[string]numbers](t, "bf16.json") {
		got := floats(unhex(t, n.Hex))
		sameBits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
		if len(got) == 0 || !slices.EqualFunc(got, n.Values, sameBits) {
			t.Errorf("%s: %v, not %v", name, got, n.Values)
		}
	}
}

func TestChecksumsAreThoseOfTheirBytes(t *testing.T) {
	for _, buffer := range load[[]struct {
		About  string `json:"about"`
		Hex    string `json:"hex"`
		SHA256 string `json:"sha256"`
		CRC32C uint32 `json:"crc32c"`
	}](t, "checksums.json") {
		data := unhex(t, buffer.Hex)
		if got := crc32.Checksum(data, castagnoli); got != buffer.CRC32C {
			t.Errorf("%s: the CRC-32C is %d, not %d", buffer.About, got, buffer.CRC32C)
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != buffer.SHA256 {
			t.Errorf("%s: the SHA-256 is %x, not %s", buffer.About, got, buffer.SHA256)
		}
	}
}

// stream is the answer of one call with three pictures.
type stream struct {
	Frames   []string `json:"frames"`
	Pictures map[string]struct {
		Header  json.RawMessage `json:"header"`
		Patches *numbers        `json:"patches"`
		Error   json.RawMessage `json:"error"`
	} `json:"pictures"`
}

func frames(t *testing.T) []*preprocessv1.PatchFrame {
	t.Helper()
	var frames []*preprocessv1.PatchFrame
	for _, text := range load[stream](t, "stream.json").Frames {
		frame := &preprocessv1.PatchFrame{}
		if err := proto.Unmarshal(unhex(t, text), frame); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	return frames
}

func TestInterleavedFramesArePutTogether(t *testing.T) {
	want := load[stream](t, "stream.json").Pictures
	got := answers{}
	for _, frame := range frames(t) {
		if err := got.add(frame); err != nil {
			t.Fatal(err)
		}
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("there are answers to %v", names)
	}
	for id, picture := range want {
		one := got[id]
		if picture.Error != nil {
			var failure preprocessv1.ImageError
			unmarshal(t, picture.Error, &failure)
			if !proto.Equal(one.failure, &failure) || one.patches.done {
				t.Errorf("%s ended with %v, not with %v", id, one, &failure)
			}
			continue
		}
		var header preprocessv1.PatchHeader
		unmarshal(t, picture.Header, &header)
		if !proto.Equal(one.patches.header, &header) || !one.patches.done || one.failure != nil {
			t.Errorf("%s is %v, not whole with header %v", id, one, &header)
		}
		if !slices.Equal(one.patches.data, unhex(t, picture.Patches.Hex)) {
			t.Errorf("%s has other bytes: %x", id, one.patches.data)
		}
		if !slices.Equal(floats(one.patches.data), picture.Patches.Values) {
			t.Errorf("%s has other numbers: %v", id, floats(one.patches.data))
		}
	}
}

func TestADamagedBufferIsRefused(t *testing.T) {
	for _, c := range []struct {
		about  string
		damage func(frames []*preprocessv1.PatchFrame) []*preprocessv1.PatchFrame
		want   string
	}{
		{"a bit is flipped", func(f []*preprocessv1.PatchFrame) []*preprocessv1.PatchFrame {
			f[1].GetChunk().Data[0] ^= 1
			return f
		}, "the CRC-32C is "},
		{"a chunk is lost", func(f []*preprocessv1.PatchFrame) []*preprocessv1.PatchFrame {
			return slices.Delete(f, 1, 2)
		}, "a chunk begins at byte 24, and 0 came"},
		{"the last chunk is lost", func(f []*preprocessv1.PatchFrame) []*preprocessv1.PatchFrame {
			return slices.Delete(f, len(f)-2, len(f)-1)
		}, "120 bytes came of 144"},
		{"the numbers are of another type", func(f []*preprocessv1.PatchFrame) []*preprocessv1.PatchFrame {
			f[0].GetHeader().Dtype = 2
			return f
		}, "the numbers are 2"},
	} {
		t.Run(c.about, func(t *testing.T) {
			first := slices.DeleteFunc(frames(t), func(f *preprocessv1.PatchFrame) bool { return f.ImageId != "first" })
			var p patches
			var err error
			for _, frame := range c.damage(first) {
				if err = p.add(frame); err != nil {
					break
				}
			}
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || p.done {
				t.Errorf("the error is %v, not %q", err, c.want)
			}
		})
	}
}

func unmarshal(t *testing.T, text []byte, into proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func load[T any](t *testing.T, name string) T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	var into T
	if err := json.Unmarshal(data, &into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return into
}
