package checkpoint

import (
	"errors"
	"fmt"
	"reflect"
)

// Codec is a format of checkpoints. One Codec may serve any number of goroutines, so both methods
// must be safe for concurrent use. What a method keeps of its arguments after it has returned, it
// must not write to.
type Codec interface {
	// Marshal returns v as bytes that Unmarshal can read. Empty bytes are stored as "no state", which
	// [Decode] reads as the zero value without asking the codec.
	Marshal(v any) ([]byte, error)

	// Unmarshal stores what data says in the value that v, a pointer and never nil, points to. That
	// value is zero when the call begins, and thrown away if the call returns an error.
	Unmarshal(data []byte, v any) error
}

var errNilCodec = errors.New("nil codec")

// Encode returns v in c's format. On an error, which names the type of v and wraps the codec's, it
// returns nil, whatever the codec did. A nil c is an error. A panic in the codec passes through.
func Encode[T any](c Codec, v T) ([]byte, error) {
	if c == nil {
		return nil, wrap[T]("encode", errNilCodec)
	}
	data, err := c.Marshal(v)
	if err != nil {
		return nil, wrap[T]("encode", err)
	}
	return data, nil
}

// Decode returns the value that data holds in c's format. For nil data, which is what a lease without
// a checkpoint has, it returns the zero T and does not call c. Empty data that is not nil is left to
// the codec: no lease returns it, so it comes from elsewhere, and not every format can read it.
//
// On an error, which names T and wraps the codec's, Decode returns the zero T and nothing of what the
// codec had read by then. A nil c is an error, also for nil data, so that the mistake shows in the
// first run and not only in the one that resumes. A panic in the codec passes through.
func Decode[T any](c Codec, data []byte) (T, error) {
	var v, zero T
	if c == nil {
		return zero, wrap[T]("decode", errNilCodec)
	}
	if data == nil {
		return zero, nil
	}
	if err := c.Unmarshal(data, &v); err != nil {
		return zero, wrap[T]("decode", err)
	}
	return v, nil
}

func wrap[T any](operation string, err error) error {
	return fmt.Errorf("checkpoint: %s %v: %w", operation, reflect.TypeFor[T](), err)
}
