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
	for m := backend.ExitNone; m <= backend.ExitExpired; m++ {
		if m.String() == words[1] {
			found.PrevExit = m
			return found, nil
		}
	}
	return backend.Checkpoint{}, fmt.Errorf("unknown previous exit %q in the store", words[1])
}
