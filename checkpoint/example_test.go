package checkpoint_test

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/aetomala/worklease/checkpoint"
)

func Example() {
	type progress struct {
		LastID int64
		Done   int
	}

	// What the holder gives to Lease.Checkpoint.
	state, err := checkpoint.Encode(checkpoint.JSON(), progress{LastID: 4711, Done: 120})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", state)

	// What its successor makes of the State that it finds.
	p, err := checkpoint.Decode[progress](checkpoint.JSON(), state)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("carrying on after", p.LastID)
	// Output:
	// {"LastID":4711,"Done":120}
	// carrying on after 4711
}

// The first holder finds no state, and starts from the zero value.
func ExampleDecode_firstHolder() {
	offset, err := checkpoint.Decode[int](checkpoint.JSON(), nil)
	fmt.Println(offset, err)
	// Output: 0 <nil>
}

func ExampleEncode() {
	state, err := checkpoint.Encode(checkpoint.JSON(), map[string]int{"page": 3})
	fmt.Println(string(state), err)
	// Output: {"page":3} <nil>
}

// offsets is a format for work whose progress is one number.
type offsets struct{}

func (offsets) Marshal(v any) ([]byte, error) {
	n, ok := v.(uint64)
	if !ok {
		return nil, fmt.Errorf("%T is not an offset", v)
	}
	return binary.BigEndian.AppendUint64(nil, n), nil
}

func (offsets) Unmarshal(data []byte, v any) error {
	n, ok := v.(*uint64)
	if !ok {
		return fmt.Errorf("%T is not an offset", v)
	}
	if len(data) != 8 {
		return io.ErrUnexpectedEOF
	}
	*n = binary.BigEndian.Uint64(data)
	return nil
}

func ExampleCodec() {
	state, _ := checkpoint.Encode(offsets{}, uint64(258))
	fmt.Println(state)

	_, err := checkpoint.Decode[uint64](offsets{}, state[:3])
	fmt.Println(err)
	// Output:
	// [0 0 0 0 0 0 1 2]
	// checkpoint: decode uint64: unexpected EOF
}
