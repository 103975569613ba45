package redis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aetomala/worklease/backend"
)

func token(record backend.LeaseRecord) string { return strconv.FormatUint(record.FencingToken, 10) }

// micros writes d in the unit of the store. Rounding up keeps the lease from ending before its window.
func micros(d time.Duration) string {
	us := d.Microseconds()
	if d%time.Microsecond > 0 {
		us++
	}
	return strconv.FormatInt(us, 10)
}

func instant(word string) (time.Time, error) {
	us, err := strconv.ParseInt(word, 10, 64)
	return time.UnixMicro(us), err
}

// checkpointOf reads a state, an exit and a holder ID.
func checkpointOf(words []string) (backend.Checkpoint, error) {
	found := backend.Checkpoint{PrevHolderID: words[2]}
	if words[0] != "" {
		found.State = []byte(words[0])
	}
	var err error
	if found.PrevExit, err = exitMode(words[1]); err != nil {
		return backend.Checkpoint{}, err
	}
	return found, nil
}

func exitMode(word string) (backend.ExitMode, error) {
	for m := backend.ExitNone; m <= backend.ExitExpired; m++ {
		if m.String() == word {
			return m, nil
		}
	}
	return backend.ExitNone, fmt.Errorf("unknown exit %q in the store", word)
}
