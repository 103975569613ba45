package checkpoint_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/aetomala/worklease/checkpoint"
)

// JSON text is UTF-8, so Note is made valid first; the same bytes travel unchanged in Blob.
func FuzzRoundTrip(f *testing.F) {
	f.Add(int64(0), "", []byte(nil))
	f.Add(int64(-1), "a\x00\xff</script>", []byte{0x00, 0x01, 0xff, 0x5c})
	f.Add(int64(1<<63-1), "\u2028", []byte{})
	f.Fuzz(func(t *testing.T, id int64, note string, blob []byte) {
		note = strings.ToValidUTF8(note, "\ufffd")
		roundTrip(t, checkpoint.JSON(), progress{
			LastID: id,
			Note:   note,
			Seen:   []string{note},
			Sizes:  map[string]int{note: len(note)},
			Blob:   blob,
		})
	})
}

// Whatever bytes a store hands back, Decode neither panics nor returns half a value, and what it
// accepts it can write and read again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"LastID":1,"Note":7}`, `{"Sizes":{"a":1}} x`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := checkpoint.Decode[progress](checkpoint.JSON(), data)
		if err != nil {
			if !reflect.DeepEqual(got, progress{}) {
				t.Errorf("got %+v along with %v", got, err)
			}
			return
		}
		roundTrip(t, checkpoint.JSON(), got)
	})
}
