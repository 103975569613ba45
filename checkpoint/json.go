package checkpoint

import "encoding/json"

// JSONCodec is the format of package encoding/json, with that package's rules: only exported fields
// are saved, unknown fields are skipped, a number read into an interface is a float64, and text that
// is not valid UTF-8 does not survive; keep such bytes in a []byte. The zero value is ready to use.
type JSONCodec struct{}

var _ Codec = JSONCodec{}

// JSON returns the JSON codec.
func JSON() JSONCodec { return JSONCodec{} }

// Marshal returns v as JSON.
func (JSONCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal reads data, which must hold one JSON value and nothing after it, into v.
func (JSONCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
