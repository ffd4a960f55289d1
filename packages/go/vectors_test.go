package protos_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "interlock.dev/protos/bootstrap/v1"
	kvv1 "interlock.dev/protos/kv/v1"
	preprocessv1 "interlock.dev/protos/preprocess/v1"
)

var vectors = filepath.Join("..", "..", "vectors")

// message is one with its bytes and its JSON. JSON is absent where it cannot say the message.
type message struct {
	About                   string          `json:"about"`
	Type                    string          `json:"type"`
	Hex                     string          `json:"hex"`
	JSON                    json.RawMessage `json:"json"`
	AlsoHex                 []string        `json:"also_hex"`
	AlsoJSON                []string        `json:"also_json"`
	HexWithoutUnknownFields *string         `json:"hex_without_unknown_fields"`
}

func TestEveryMessageHasItsBytesAndItsJSON(t *testing.T) {
	for _, m := range load[[]message](t, "messages.json") {
		t.Run(m.Type+": "+m.About, func(t *testing.T) { m.check(t) })
	}
}

func TestEveryTriedValueHasItsBytesAndItsJSON(t *testing.T) {
	for _, value := range load[[]struct {
		About    string    `json:"about"`
		Requests []message `json:"requests"`
	}](t, "values.json") {
		t.Run(value.About, func(t *testing.T) {
			for _, request := range value.Requests {
				request.check(t)
			}
		})
	}
}

// check reads and writes the message in each of its spellings. Go writes the cases of a oneof after all other fields, and
// the order of fields means nothing; so bytes are compared by what they say and by how many they are.
func (m *message) check(t *testing.T) {
	t.Helper()
	read := parse(t, m.Type, m.Hex)
	sameBytes(t, read, m.Hex)
	same := []proto.Message{}
	for _, other := range m.AlsoHex {
		same = append(same, parse(t, m.Type, other))
	}
	if m.JSON != nil {
		written, err := protojson.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := value(t, written), value(t, m.JSON); !reflect.DeepEqual(got, want) {
			t.Errorf("the JSON is %s, not %s", written, m.JSON)
		}
		for _, text := range append(m.AlsoJSON, string(m.JSON)) {
			other := newMessage(t, m.Type)
			if err := protojson.Unmarshal([]byte(text), other); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			same = append(same, other)
		}
	}
	known := m.Hex
	if m.HexWithoutUnknownFields != nil {
		known = *m.HexWithoutUnknownFields
	}
	for _, other := range same {
		sameBytes(t, other, known)
	}
}

func sameBytes(t *testing.T, message proto.Message, want string) {
	t.Helper()
	written, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	name := string(message.ProtoReflect().Descriptor().FullName())
	if !proto.Equal(parse(t, name, hex.EncodeToString(written)), parse(t, name, want)) || 2*len(written) != len(want) {
		t.Errorf("%v has the bytes %x, not %s", message, written, want)
	}
}

func TestEveryPoolHasItsWireName(t *testing.T) {
	names := load[struct {
		Pools []struct {
			Number   int32  `json:"number"`
			EnumName string `json:"enum_name"`
			WireName string `json:"wire_name"`
		} `json:"pools"`
		NotWireNames []string `json:"not_wire_names"`
	}](t, "pool_names.json")
	if known := len(kvv1.PoolName_name) - 1; len(names.Pools) != known {
		t.Errorf("%d pools are known, and %d are named", known, len(names.Pools))
	}
	for _, pool := range names.Pools {
		name := kvv1.PoolName(pool.Number)
		if name.String() != pool.EnumName || name.WireName() != pool.WireName {
			t.Errorf("%d is %s, on the wire %q; not %v", pool.Number, name, name.WireName(), pool)
		}
		if got, err := kvv1.PoolNameFromWire(pool.WireName); err != nil || got != name {
			t.Errorf("%q is %s (%v), not %s", pool.WireName, got, err, name)
		}
	}
	for _, text := range names.NotWireNames {
		if got, err := kvv1.PoolNameFromWire(text); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
	if got := kvv1.PoolName(9999).WireName(); got != "" {
		t.Errorf("a pool of a newer version is called %q", got)
	}
}

func TestEveryRefusalIsReadWithItsDetails(t *testing.T) {
	for _, refusal := range load[[]struct {
		About    string `json:"about"`
		Status   string `json:"status"`
		Code     uint32 `json:"code"`
		CodeName string `json:"code_name"`
		Message  string `json:"message"`
		Details  []struct {
			Type string          `json:"type"`
			JSON json.RawMessage `json:"json"`
		} `json:"details"`
	}](t, "errors.json") {
		t.Run(refusal.About, func(t *testing.T) {
			var trailer status.Status
			if err := proto.Unmarshal(read(t, refusal.Status), &trailer); err != nil {
				t.Fatal(err)
			}
			got := grpcstatus.FromProto(&trailer)
			if code := codeNamed(t, refusal.CodeName); got.Code() != code || uint32(got.Code()) != refusal.Code || got.Message() != refusal.Message {
				t.Errorf("%d %q, not %d %q", got.Code(), got.Message(), refusal.Code, refusal.Message)
			}
			if len(got.Details()) != len(refusal.Details) {
				t.Fatalf("%d details, not %d", len(got.Details()), len(refusal.Details))
			}
			for i, any := range got.Details() {
				detail, isMessage := any.(proto.Message)
				if !isMessage {
					t.Fatalf("detail %d: %v", i, any)
				}
				want := newMessage(t, refusal.Details[i].Type)
				if err := protojson.Unmarshal(refusal.Details[i].JSON, want); err != nil {
					t.Fatal(err)
				}
				if !proto.Equal(detail, want) {
					t.Errorf("detail %d is %v, not %v", i, detail, want)
				}
			}
		})
	}
}

func TestEveryReasonHasACodeThatIsKnown(t *testing.T) {
	for _, reason := range load[[]struct {
		Reason   string `json:"reason"`
		Code     uint32 `json:"code"`
		CodeName string `json:"code_name"`
	}](t, "reasons.json") {
		if got := codeNamed(t, reason.CodeName); uint32(got) != reason.Code || got == codes.OK {
			t.Errorf("%s: %s is %d, not %d", reason.Reason, reason.CodeName, got, reason.Code)
		}
	}
}

func codeNamed(t *testing.T, name string) codes.Code {
	t.Helper()
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
		t.Fatal(err)
	}
	return code
}

func TestWhatAnAbsentFieldMeansCanBeSaid(t *testing.T) {
	for _, field := range load[[]struct {
		Field       string          `json:"field"`
		AbsentMeans json.RawMessage `json:"absent_means"`
	}](t, "defaults.json") {
		kind, name := field.Field[:strings.LastIndex(field.Field, ".")], protoreflect.FullName(field.Field).Name()
		said := newMessage(t, kind)
		if err := protojson.Unmarshal(fmt.Appendf(nil, "{%q: %s}", name, field.AbsentMeans), said); err != nil {
			t.Errorf("%s: %v", field.Field, err)
		}
		if said.ProtoReflect().Descriptor().Fields().ByName(name) == nil {
			t.Errorf("there is no field %s", field.Field)
		}
	}
}

func TestEveryPlanIsThatOfItsSize(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectors, "plans", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			profile := load[struct {
				Profile json.RawMessage   `json:"profile"`
				Plans   []json.RawMessage `json:"plans"`
			}](t, "plans/"+name+".json")
			var request preprocessv1.PlanImagesRequest
			var response preprocessv1.PlanImagesResponse
			for file, into := range map[string]proto.Message{"request": &request, "response": &response} {
				if err := proto.Unmarshal(read(t, "plans/"+name+"."+file+".bin"), into); err != nil {
					t.Fatal(err)
				}
			}
			if len(profile.Plans) != 200 || len(request.Sizes) != 200 || len(response.Results) != 200 {
				t.Fatalf("%d plans, %d sizes, %d results", len(profile.Plans), len(request.Sizes), len(response.Results))
			}
			for i, text := range profile.Plans {
				var size struct {
					Width, Height uint32
				}
				if err := json.Unmarshal(text, &size); err != nil {
					t.Fatal(err)
				}
				if asked := request.Sizes[i]; asked.Width != size.Width || asked.Height != size.Height {
					t.Errorf("size %d is %v, not %v", i, asked, size)
				}
				var want preprocessv1.PlanResult
				if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &want); err != nil {
					t.Fatal(err)
				}
				if !proto.Equal(response.Results[i], &want) {
					t.Errorf("%dx%d: %v, not %v", size.Width, size.Height, response.Results[i], &want)
				}
			}
		})
	}
}

func TestEveryAddressIsStoredAsTheSameAddress(t *testing.T) {
	literals := 0
	for _, address := range load[[]struct {
		Text   string `json:"text"`
		Legal  bool   `json:"legal"`
		Stored string `json:"stored"`
	}](t, "addresses.json") {
		offered, err := netip.ParseAddr(strings.Trim(address.Text, "[]"))
		if !address.Legal || err != nil {
			continue // refused, or a host name
		}
		literals++
		if stored, err := netip.ParseAddr(address.Stored); err != nil || stored != offered.Unmap() {
			t.Errorf("%s is stored as %s (%v)", address.Text, stored, err)
		}
	}
	if literals == 0 {
		t.Error("no address is an IP literal")
	}
}

func TestExtraJSONStaysAsItIsSpelt(t *testing.T) {
	extra := load[struct {
		Texts []struct {
			Text  string `json:"text"`
			Legal bool   `json:"legal"`
		} `json:"texts"`
		Differ [][2]string `json:"differ_though_they_mean_the_same"`
	}](t, "extra_json.json")
	layout := func(text string) *kvv1.SpecLayout {
		return &kvv1.SpecLayout{ExtraJson: map[string]string{"key": text}}
	}
	for _, text := range extra.Texts {
		if !text.Legal {
			continue
		}
		if !json.Valid([]byte(text.Text)) {
			t.Errorf("%s is no JSON", text.Text)
		}
		again := newMessage(t, "interlock.kv.v1.SpecLayout")
		written, err := proto.Marshal(layout(text.Text))
		if err == nil {
			err = proto.Unmarshal(written, again)
		}
		if err != nil || !proto.Equal(again, layout(text.Text)) {
			t.Errorf("%s came back as %v (%v)", text.Text, again, err)
		}
	}
	if len(extra.Differ) == 0 {
		t.Error("no two texts differ")
	}
	for _, pair := range extra.Differ {
		if proto.Equal(layout(pair[0]), layout(pair[1])) {
			t.Errorf("%s and %s are taken for the same", pair[0], pair[1])
		}
	}
}

func newMessage(t *testing.T, name string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

func parse(t *testing.T, name, text string) proto.Message {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	message := newMessage(t, name)
	if err := proto.Unmarshal(data, message); err != nil {
		t.Fatal(err)
	}
	return message
}

func value(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectors, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func load[T any](t *testing.T, name string) T {
	t.Helper()
	var into T
	if err := json.Unmarshal(read(t, name), &into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return into
}
