package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"

	preprocessv1 "interlock.dev/protos/preprocess/v1"
)

// partBytes is small, so that the pictures of the examples come in several parts. About 1 MiB is a good size.
const partBytes = 1024

// pictureFolder is the path of a folder with pictures and their expected.json.
type pictureFolder string

// expectations is expected.json: what must come back.
type expectations struct {
	Pictures []expectedPatches `json:"pictures"`
	Damaged  []struct {
		File   string `json:"file"`
		Reason string `json:"reason"`
	} `json:"damaged"`
}

type expectedPatches struct {
	File          string    `json:"file"`
	Profile       string    `json:"profile"`
	PatchesSHA256 string    `json:"patches_sha256"`
	GridWidth     uint32    `json:"grid_width"`
	GridHeight    uint32    `json:"grid_height"`
	FirstValues   []float32 `json:"first_values"`
}

func (f pictureFolder) expected() (*expectations, error) {
	text, err := f.read("expected.json")
	if err != nil {
		return nil, err
	}
	var expected expectations
	if err := json.Unmarshal(text, &expected); err != nil {
		return nil, fmt.Errorf("expected.json: %w", err)
	}
	if len(expected.Pictures) < 2 || len(expected.Damaged) == 0 {
		return nil, errors.New("expected.json has not two pictures and a damaged one")
	}
	return &expected, nil
}

func (f pictureFolder) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), name))
}

// check compares patches with what must come back.
func (e *expectedPatches) check(p *patches) error {
	sum := sha256.Sum256(p.data)
	first := floats(p.data[:2*len(e.FirstValues)])
	plan := p.header.Plan
	switch {
	case hex.EncodeToString(sum[:]) != e.PatchesSHA256:
		return fmt.Errorf("%s: the SHA-256 is %x, not %s", e.File, sum, e.PatchesSHA256)
	case plan.GridWidth != e.GridWidth || plan.GridHeight != e.GridHeight:
		return fmt.Errorf("%s: the grid is %dx%d, not %dx%d", e.File, plan.GridWidth, plan.GridHeight, e.GridWidth, e.GridHeight)
	case !slices.Equal(first, e.FirstValues):
		return fmt.Errorf("%s: the first numbers are %v, not %v", e.File, first, e.FirstValues)
	}
	return nil
}

func byName(profile string) *preprocessv1.ProfileSelector {
	return &preprocessv1.ProfileSelector{Profile: &preprocessv1.ProfileSelector_Name{Name: profile}}
}

func picture(ctx context.Context, c *client) (string, error) {
	expected, err := c.pictures.expected()
	if err != nil {
		return "", err
	}
	size := 0
	for _, e := range expected.Pictures {
		source, err := c.pictures.read(e.File)
		if err != nil {
			return "", err
		}
		p, err := c.preprocessOne(ctx, source, e.Profile)
		if err != nil {
			return "", fmt.Errorf("%s: %w", e.File, err)
		}
		if err := e.check(p); err != nil {
			return "", err
		}
		size += len(p.data)
	}
	return fmt.Sprintf("%d pictures, %d bytes of patches as the reference gives them", len(expected.Pictures), size), nil
}

// preprocessOne sends a picture file in one message and gives its patches. A fault is the call's status.
func (c *client) preprocessOne(ctx context.Context, source []byte, profile string) (*patches, error) {
	stream, err := c.preprocess.PreprocessImage(ctx, &preprocessv1.PreprocessImageRequest{
		Source:  &preprocessv1.PreprocessImageRequest_Encoded{Encoded: source},
		Profile: byName(profile),
	})
	if err != nil {
		return nil, err
	}
	var p patches
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := p.add(frame); err != nil {
			return nil, err
		}
	}
	if !p.done {
		return nil, errors.New("the stream ended without a trailer")
	}
	return &p, nil
}

// streamed is how one picture of a stream ended: with patches or with an error.
type streamed struct {
	patches patches
	failure *preprocessv1.ImageError
}

// answers are the pictures of a stream by their ids.
type answers map[string]*streamed

// add takes in one frame of the stream. Frames of different pictures may interleave.
func (a answers) add(frame *preprocessv1.PatchFrame) error {
	if frame.GetSettings() != nil {
		return nil // the credits; these few small pictures are within any
	}
	one := a[frame.ImageId]
	if one == nil {
		one = &streamed{}
		a[frame.ImageId] = one
	}
	if failure := frame.GetError(); failure != nil {
		one.failure = failure
		return nil
	}
	if err := one.patches.add(frame); err != nil {
		return fmt.Errorf("%s: %w", frame.ImageId, err)
	}
	return nil
}

// preprocessMany runs a stream. The requests are written while the answers are read, as every caller should: a server
// that is not read stops reading.
func (c *client) preprocessMany(ctx context.Context, requests []*preprocessv1.PreprocessImagesRequest) (answers, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.preprocess.PreprocessImages(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		for _, request := range requests {
			if stream.Send(request) != nil {
				return // Recv has the reason
			}
		}
		_ = stream.CloseSend()
	}()
	ended := answers{}
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ended, nil
		}
		if err != nil {
			return nil, err
		}
		if err := ended.add(frame); err != nil {
			return nil, err
		}
	}
}

// begin announces a picture.
func begin(id string, source []byte, profile string) *preprocessv1.PreprocessImagesRequest {
	return &preprocessv1.PreprocessImagesRequest{Step: &preprocessv1.PreprocessImagesRequest_Begin{
		Begin: &preprocessv1.ImageBegin{
			ImageId:    id,
			Kind:       preprocessv1.SourceKind_SOURCE_KIND_ENCODED,
			TotalBytes: uint64(len(source)),
			Profile:    byName(profile),
		},
	}}
}

// parts are the bytes of a picture, in order.
func parts(id string, source []byte) []*preprocessv1.PreprocessImagesRequest {
	var requests []*preprocessv1.PreprocessImagesRequest
	offset := 0
	for part := range slices.Chunk(source, partBytes) {
		requests = append(requests, &preprocessv1.PreprocessImagesRequest{Step: &preprocessv1.PreprocessImagesRequest_Data{
			Data: &preprocessv1.ImageData{ImageId: id, Offset: uint64(offset), Data: part},
		}})
		offset += len(part)
	}
	return requests
}

// whole is a picture from its begin to its end.
func whole(id string, source []byte, profile string) []*preprocessv1.PreprocessImagesRequest {
	requests := append([]*preprocessv1.PreprocessImagesRequest{begin(id, source, profile)}, parts(id, source)...)
	return append(requests, &preprocessv1.PreprocessImagesRequest{Step: &preprocessv1.PreprocessImagesRequest_End{
		End: &preprocessv1.ImageEnd{ImageId: id},
	}})
}

// served checks a picture of a stream that must have come back.
func (e *expectedPatches) served(ended answers) error {
	one := ended[e.File]
	switch {
	case one == nil:
		return fmt.Errorf("%s got no answer", e.File)
	case one.failure != nil:
		return fmt.Errorf("%s failed: %v", e.File, one.failure)
	case !one.patches.done:
		return fmt.Errorf("%s has no trailer", e.File)
	}
	return e.check(&one.patches)
}

func neighbours(ctx context.Context, c *client) (string, error) {
	expected, err := c.pictures.expected()
	if err != nil {
		return "", err
	}
	before, after := expected.Pictures[0], expected.Pictures[1]
	damaged := expected.Damaged[0]
	var requests []*preprocessv1.PreprocessImagesRequest
	for _, name := range []string{before.File, damaged.File, after.File} {
		source, err := c.pictures.read(name)
		if err != nil {
			return "", err
		}
		requests = append(requests, whole(name, source, before.Profile)...)
	}
	ended, err := c.preprocessMany(ctx, requests)
	if err != nil {
		return "", err
	}
	if err := errors.Join(before.served(ended), after.served(ended)); err != nil {
		return "", err
	}
	bad := ended[damaged.File]
	if bad == nil || bad.failure.GetReason() != damaged.Reason || bad.failure.Field == "" || bad.patches.done {
		return "", fmt.Errorf("%s did not fail with %s and a field: %v", damaged.File, damaged.Reason, bad)
	}
	return fmt.Sprintf("%s, field %s; the pictures before and after it are served", bad.failure.Reason, bad.failure.Field), nil
}

func cancelOne(ctx context.Context, c *client) (string, error) {
	expected, err := c.pictures.expected()
	if err != nil {
		return "", err
	}
	unwanted, wanted := expected.Pictures[len(expected.Pictures)-1], expected.Pictures[0]
	unwantedSource, err := c.pictures.read(unwanted.File)
	if err != nil {
		return "", err
	}
	wantedSource, err := c.pictures.read(wanted.File)
	if err != nil {
		return "", err
	}
	requests := []*preprocessv1.PreprocessImagesRequest{begin(unwanted.File, unwantedSource, unwanted.Profile)}
	requests = append(requests, parts(unwanted.File, unwantedSource)[0])
	requests = append(requests, &preprocessv1.PreprocessImagesRequest{Step: &preprocessv1.PreprocessImagesRequest_Cancel{
		Cancel: &preprocessv1.ImageCancel{ImageId: unwanted.File},
	}})
	requests = append(requests, whole(wanted.File, wantedSource, wanted.Profile)...)
	ended, err := c.preprocessMany(ctx, requests)
	if err != nil {
		return "", err
	}
	if err := wanted.served(ended); err != nil {
		return "", err
	}
	cancelled := ended[unwanted.File]
	if cancelled == nil {
		return "", fmt.Errorf("%s was cancelled and got no answer", unwanted.File)
	}
	failure := cancelled.failure
	if codes.Code(failure.GetCode()) != codes.Canceled || failure.GetReason() != "CANCELLED" {
		return "", fmt.Errorf("%s was cancelled, and ended with %v", unwanted.File, failure)
	}
	return fmt.Sprintf("%s is %s, %s on the same stream is served", unwanted.File, failure.Reason, wanted.File), nil
}
