package pause_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease/internal/pause"
)

func TestJitterAddsUpToItsShare(t *testing.T) {
	const d = time.Second
	var low, high bool
	for range 10_000 {
		switch got := pause.Jitter(d, 0.2); {
		case got < d || got >= d+d/5:
			t.Fatalf("Jitter(%v, 0.2) = %v, outside of [1s, 1.2s)", d, got)
		case got < d+d/20:
			low = true
		case got > d+3*d/20:
			high = true
		}
	}
	if !low || !high {
		t.Error("10,000 draws left a quarter of the range out: they are not spread over it")
	}
}

func TestJitterKeepsToWhatItCannotSpread(t *testing.T) {
	for _, tc := range []struct {
		name  string
		d     time.Duration
		share float64
	}{
		{"no share", time.Second, 0},
		{"no time", 0, 0.2},
		{"less than no time", -time.Second, 0.2},
		{"the least there is", math.MinInt64, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := pause.Jitter(tc.d, tc.share); got != tc.d {
				t.Errorf("Jitter(%v, %v) = %v", tc.d, tc.share, got)
			}
		})
	}
}

func TestJitterDoesNotOverflow(t *testing.T) {
	for range 1000 {
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
			if got := pause.Jitter(d, 1); got < d {
				t.Fatalf("Jitter(%d, 1) = %d", d, got)
			}
		}
	}
}

func TestSleepLastsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-time.Second, 0, time.Hour} {
			start := time.Now()
			if err := pause.Sleep(t.Context(), d); err != nil {
				t.Errorf("Sleep(%v): %v", d, err)
			}
			if got := time.Since(start); got != max(d, 0) {
				t.Errorf("Sleep(%v) took %v", d, got)
			}
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := pause.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sleep in a context that ends: %v", err)
		}
		if got := time.Since(start); got != time.Minute {
			t.Errorf("Sleep outlived its context: it took %v", got)
		}
	})
}

// A loop that pauses for no time at all is still to see that it must end.
func TestSleepDoesNotBeginInAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, d := range []time.Duration{0, time.Hour} {
			start := time.Now()
			if err := pause.Sleep(ctx, d); !errors.Is(err, context.Canceled) {
				t.Errorf("Sleep(%v) in an ended context: %v", d, err)
			}
			if got := time.Since(start); got != 0 {
				t.Errorf("Sleep(%v) in an ended context took %v", d, got)
			}
		}
	})
}

func TestSleepOfNothingMakesNoTimer(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = pause.Sleep(t.Context(), 0) }); n > 0 {
		t.Errorf("Sleep(0) made %v allocations", n)
	}
}
