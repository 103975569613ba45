package checkpoint_test

import (
	"bytes"
	"encoding/gob"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/aetomala/worklease/checkpoint"
)

type progress struct {
	LastID int64
	Note   string
	Seen   []string
	Sizes  map[string]int
	Blob   []byte
}

// stub is a codec whose methods do what a test wants; one that is left out fails if it is called.
type stub struct {
	t         *testing.T
	marshal   func(v any) ([]byte, error)
	unmarshal func(data []byte, v any) error
}

func (s stub) Marshal(v any) ([]byte, error) {
	if s.marshal == nil {
		s.t.Fatal("Marshal was called")
	}
	return s.marshal(v)
}

func (s stub) Unmarshal(data []byte, v any) error {
	if s.unmarshal == nil {
		s.t.Fatal("Unmarshal was called")
	}
	return s.unmarshal(data, v)
}

type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	err := gob.NewEncoder(&buf).Encode(v)
	return buf.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func TestRoundTrip(t *testing.T) {
	full := progress{
		LastID: -1 << 63,
		Note:   "<a> & \u2028 \x00 ü",
		Seen:   []string{"", "x"},
		Sizes:  map[string]int{"a": 1, "": 0},
		Blob:   []byte{0x00, 0x01, 0xff, 0x5c},
	}
	for name, codec := range map[string]checkpoint.Codec{"json": checkpoint.JSON(), "gob": gobCodec{}} {
		t.Run(name, func(t *testing.T) {
			roundTrip(t, codec, full)
			roundTrip(t, codec, progress{})
			roundTrip(t, codec, &full)
			roundTrip(t, codec, map[string][]int{"a": {1, 2}})
			roundTrip(t, codec, []byte("bytes"))
			roundTrip(t, codec, "")
			roundTrip(t, codec, 0)
			roundTrip(t, codec, true)
		})
	}
}

func roundTrip[T any](t *testing.T, c checkpoint.Codec, v T) {
	t.Helper()
	data, err := checkpoint.Encode(c, v)
	if err != nil {
		t.Fatalf("Encode(%#v): %v", v, err)
	}
	got, err := checkpoint.Decode[T](c, data)
	if err != nil {
		t.Fatalf("Decode(%q): %v", data, err)
	}
	if !reflect.DeepEqual(got, v) {
		t.Errorf("%#v came back as %#v", v, got)
	}
}

func TestDecodeNilIsZeroWithoutTheCodec(t *testing.T) {
	codec := stub{t: t}
	if got, err := checkpoint.Decode[progress](codec, nil); err != nil || !reflect.DeepEqual(got, progress{}) {
		t.Errorf("struct: got %+v, %v", got, err)
	}
	if got, err := checkpoint.Decode[*progress](codec, nil); err != nil || got != nil {
		t.Errorf("pointer: got %+v, %v", got, err)
	}
	if got, err := checkpoint.Decode[any](codec, nil); err != nil || got != nil {
		t.Errorf("interface: got %+v, %v", got, err)
	}
}

func TestDecodeLeavesEmptyDataToTheCodec(t *testing.T) {
	codec := stub{t: t, unmarshal: func(data []byte, v any) error {
		if data == nil || len(data) != 0 {
			t.Errorf("the codec got %#v", data)
		}
		*v.(*string) = "from the codec"
		return nil
	}}
	if got, err := checkpoint.Decode[string](codec, []byte{}); err != nil || got != "from the codec" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := checkpoint.Decode[string](checkpoint.JSON(), []byte{}); err == nil {
		t.Error("empty data passed for JSON")
	}
}

func TestNilCodec(t *testing.T) {
	calls := map[string]func() (any, error){
		"Encode":             func() (any, error) { return checkpoint.Encode(nil, 7) },
		"Decode":             func() (any, error) { return checkpoint.Decode[[]byte](nil, []byte("7")) },
		"Decode of no state": func() (any, error) { return checkpoint.Decode[[]byte](nil, nil) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			got, err := call()
			if err == nil || !strings.Contains(err.Error(), "nil codec") {
				t.Errorf("error = %v", err)
			}
			if data := got.([]byte); data != nil {
				t.Errorf("got %q along with the error", data)
			}
		})
	}
}

func TestEncodeError(t *testing.T) {
	cause := errors.New("disk of clay")
	codec := stub{t: t, marshal: func(any) ([]byte, error) { return []byte("half"), cause }}

	data, err := checkpoint.Encode(codec, progress{})
	if data != nil {
		t.Errorf("data = %q along with an error", data)
	}
	checkError(t, err, cause, "checkpoint: encode checkpoint_test.progress: disk of clay")

	_, err = checkpoint.Encode[any](codec, nil)
	checkError(t, err, cause, "checkpoint: encode interface {}: disk of clay")

	if _, err := checkpoint.Encode(checkpoint.JSON(), make(chan int)); err == nil {
		t.Error("a channel was encoded as JSON")
	}
}

func TestDecodeErrorGivesZero(t *testing.T) {
	cause := errors.New("torn page")
	codec := stub{t: t, unmarshal: func(_ []byte, v any) error {
		*v.(*progress) = progress{LastID: 41, Note: "half"}
		return cause
	}}
	got, err := checkpoint.Decode[progress](codec, []byte("x"))
	if !reflect.DeepEqual(got, progress{}) {
		t.Errorf("got %+v along with an error", got)
	}
	checkError(t, err, cause, "checkpoint: decode checkpoint_test.progress: torn page")

	// LastID is read before the error in Note is met.
	got, err = checkpoint.Decode[progress](checkpoint.JSON(), []byte(`{"LastID":41,"Note":7}`))
	if err == nil || !reflect.DeepEqual(got, progress{}) {
		t.Errorf("JSON: got %+v, %v", got, err)
	}
	if _, err := checkpoint.Decode[int](checkpoint.JSON(), []byte(`1 2`)); err == nil {
		t.Error("JSON: a second value was ignored")
	}
}

func checkError(t *testing.T, err, cause error, text string) {
	t.Helper()
	if !errors.Is(err, cause) || errors.Unwrap(err) != cause {
		t.Errorf("%v does not wrap the codec's error exactly once", err)
	}
	if err == nil || err.Error() != text {
		t.Errorf("error = %v, want %s", err, text)
	}
}

func TestCodecSeesAZeroValue(t *testing.T) {
	codec := stub{t: t, unmarshal: func(_ []byte, v any) error {
		if p, ok := v.(*progress); !ok || p == nil || !reflect.DeepEqual(*p, progress{}) {
			t.Errorf("the codec got %#v", v)
		}
		return nil
	}}
	if _, err := checkpoint.Decode[progress](codec, []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestPanicOfACodecPasses(t *testing.T) {
	codec := stub{t: t,
		marshal:   func(any) ([]byte, error) { panic("marshal") },
		unmarshal: func([]byte, any) error { panic("unmarshal") },
	}
	calls := map[string]func(){
		"marshal":   func() { checkpoint.Encode(codec, 1) },
		"unmarshal": func() { checkpoint.Decode[int](codec, []byte("x")) },
	}
	for want, call := range calls {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("recovered %v, want %v", got, want)
				}
			}()
			call()
		}()
	}
}

// A rollout has both versions of a program taking turns at one lease.
func TestJSONBetweenVersions(t *testing.T) {
	type older struct{ LastID int64 }
	type newer struct {
		LastID int64
		Shard  string
	}
	ahead, err := checkpoint.Encode(checkpoint.JSON(), newer{LastID: 9, Shard: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	back, err := checkpoint.Decode[older](checkpoint.JSON(), ahead)
	if err != nil || back != (older{LastID: 9}) {
		t.Errorf("the older version reads %+v, %v", back, err)
	}
	behind, err := checkpoint.Encode(checkpoint.JSON(), back)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := checkpoint.Decode[newer](checkpoint.JSON(), behind); err != nil || got != (newer{LastID: 9}) {
		t.Errorf("the newer version reads %+v, %v", got, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	codec := checkpoint.JSON()
	shared := progress{LastID: 3, Seen: []string{"a"}, Sizes: map[string]int{"a": 1}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				data, err := checkpoint.Encode(codec, shared)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := checkpoint.Decode[progress](codec, data); err != nil || got.LastID != 3 {
					t.Errorf("got %+v, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
