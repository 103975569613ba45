package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
)

func TestHangingBatchIsGivenUpAndMadeAgain(t *testing.T) {
	const n = 50
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		var calls atomic.Int64
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			if calls.Add(1) <= 2 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return s.renewEach(ctx, records, ttl)
		}
		all := startTenures(t, newLease(t, s, "a", batchTTL), n, worklease.WithRenewalInterval(batchTTL/3))
		time.Sleep(5 * batchTTL)
		if got := all.alive(); got != n {
			t.Errorf("%d of %d leases are left", got, n)
		}
		all.stop()
	})
}

func TestBatchesThatHangForEverAreBounded(t *testing.T) {
	const n = 50
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		hang := make(chan struct{})
		unanswered := make(map[string]int)
		var mu sync.Mutex
		count := func(d int, records ...backend.LeaseRecord) {
			mu.Lock()
			defer mu.Unlock()
			for _, record := range records {
				if unanswered[record.WorkID] += d; unanswered[record.WorkID] > 3 {
					t.Errorf("%s has %d calls in flight", record.WorkID, unanswered[record.WorkID])
				}
			}
		}
		s.OnBatch = func(_ context.Context, records []backend.LeaseRecord, _ time.Duration) ([]error, error) {
			count(1, records...)
			defer count(-1, records...)
			<-hang // as a driver that does not know of contexts
			return nil, errStore
		}
		s.OnRenew = func(_ context.Context, record backend.LeaseRecord, _ time.Duration) error {
			count(1, record)
			defer count(-1, record)
			<-hang
			return errStore
		}
		start := time.Now()
		all := startTenures(t, newLease(t, s, "a", batchTTL), n)
		for _, ctx := range all.ctxs {
			mustEnd(t, ctx, start.Add(batchTTL), worklease.ErrLeaseWindowExhausted)
		}
		close(hang)
	})
}

// Nobody waits for a call any more whose leases have all been stopped.
func TestBatchIsCancelledWhenAllItsLeasesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		sent, cancelled := make(chan []backend.LeaseRecord, 10), make(chan struct{}, 10)
		var first atomic.Bool
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			if !first.CompareAndSwap(false, true) {
				return s.renewEach(ctx, records, ttl)
			}
			sent <- records
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, ctx.Err()
		}
		all := startTenures(t, newLease(t, s, "a", batchTTL), 20)
		stop := make(map[string]func())
		for i, token := range all.tokens {
			stop[token.WorkID()] = all.stops[i]
		}
		records := <-sent
		for _, record := range records[1:] {
			stop[record.WorkID]()
		}
		synctest.Wait()
		if len(cancelled) != 0 {
			t.Error("the call was cancelled while a lease waits for it")
		}
		stop[records[0].WorkID]()
		synctest.Wait()
		if len(cancelled) != 1 {
			t.Error("the call goes on although nobody waits for it")
		}
		all.stop()
		time.Sleep(2 * batchTTL)
	})
}

// A wrapper may offer what its inner store lacks.
func TestBatchesThatTheStoreHasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.OnBatch = func(context.Context, []backend.LeaseRecord, time.Duration) ([]error, error) {
			return nil, fmt.Errorf("wrapper: %w", errors.ErrUnsupported)
		}
		rec := new(recorder)
		all := startTenures(t, newObserved(t, s, "a", batchTTL, rec), 20)
		time.Sleep(5 * batchTTL)
		if n := all.alive(); n != 20 {
			t.Errorf("%d leases are left", n)
		}
		if n := s.calls(); n > 20 {
			t.Errorf("it was tried %d times", n)
		}
		for _, e := range eventsOf[worklease.RenewEvent](rec) {
			if e.Err != nil {
				t.Fatalf("event %+v", e)
			}
		}
		all.stop()
	})
}

func TestAnswerForTheWrongNumberOfLeasesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.OnBatch = func(_ context.Context, records []backend.LeaseRecord, _ time.Duration) ([]error, error) {
			return make([]error, len(records)+1), nil
		}
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { return errStore }
		start := time.Now()
		all := startTenures(t, newLease(t, s, "a", batchTTL), 30)
		for _, ctx := range all.ctxs {
			mustEnd(t, ctx, start.Add(batchTTL), worklease.ErrLeaseWindowExhausted)
		}
	})
}

func TestPanicOfABatchEndsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.OnBatch = func(context.Context, []backend.LeaseRecord, time.Duration) ([]error, error) { panic("bug") }
		s.OnRenew = func(context.Context, backend.LeaseRecord, time.Duration) error { panic("bug") }
		all := startTenures(t, newLease(t, s, "a", batchTTL), 5)
		time.Sleep(batchTTL / 2)
		for _, ctx := range all.ctxs {
			if ctx.Err() == nil {
				t.Fatal("the work goes on unwatched")
			}
			mustMatch(t, context.Cause(ctx), worklease.ErrLeaseWindowExhausted)
		}
	})
}

type panickyObserver struct {
	worklease.NoopObserver
	of    string
	calls atomic.Int64
}

func (o *panickyObserver) OnRenew(_ context.Context, e worklease.RenewEvent) {
	if o.calls.Add(1); e.Token.WorkID() == o.of {
		panic("bug")
	}
}

func TestPanicOfAnObserverEndsThatLeaseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := &panickyObserver{of: "work-00002"}
		all := startTenures(t, newObserved(t, newBatchStore(), "a", batchTTL, observer), 5)
		time.Sleep(3 * batchTTL)
		if n := all.alive(); n != 4 || all.ctxs[2].Err() == nil {
			t.Errorf("%d leases are left", n)
		}
		mustMatch(t, context.Cause(all.ctxs[2]), worklease.ErrLeaseWindowExhausted)
		all.stop()
	})
}
