package worklease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/faulty"
)

// batchStore renews many leases in one call, by renewing each. OnBatch may take the place of that.
type batchStore struct {
	*faulty.Store
	OnBatch func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error)

	mu      sync.Mutex
	batches []int // their sizes
}

func newBatchStore() *batchStore { return &batchStore{Store: newStore()} }

func (s *batchStore) RenewBatch(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	s.mu.Lock()
	s.batches = append(s.batches, len(records))
	s.mu.Unlock()
	if s.OnBatch != nil {
		return s.OnBatch(ctx, records, ttl)
	}
	return s.renewEach(ctx, records, ttl)
}

func (s *batchStore) renewEach(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	verdicts := make([]error, len(records))
	for i, record := range records {
		verdicts[i] = s.Backend.Renew(ctx, record, ttl)
	}
	return verdicts, nil
}

func (s *batchStore) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.batches)
}

// tenures is what many tenures of one Lease need to know of each other: nothing.
type tenures struct {
	tokens []worklease.Token
	ctxs   []context.Context
	stops  []func()
}

func startTenures(t *testing.T, l worklease.Lease, n int, opts ...worklease.RenewalOption) *tenures {
	t.Helper()
	all := new(tenures)
	for i := range n {
		token := acquire(t, l, fmt.Sprintf("work-%05d", i))
		ctx, stop := l.StartRenewal(t.Context(), token, opts...)
		all.tokens, all.ctxs, all.stops = append(all.tokens, token), append(all.ctxs, ctx), append(all.stops, stop)
	}
	return all
}

func (a *tenures) stop() {
	for _, stop := range a.stops {
		stop()
	}
}

// alive returns how many go on.
func (a *tenures) alive() (n int) {
	for _, ctx := range a.ctxs {
		if _, ok := worklease.LeaseWindow(ctx); ok {
			n++
		}
	}
	return n
}

const batchTTL = 30 * time.Second

func TestRenewalsAreMadeTogether(t *testing.T) {
	const n, rounds = 1000, 12
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		rec := new(recorder)
		all := startTenures(t, newObserved(t, s, "a", batchTTL, rec), n)
		time.Sleep(rounds * batchTTL / 2)
		if got := all.alive(); got != n {
			t.Errorf("%d of %d leases are left", got, n)
		}
		// Those that begin together draw their first waits apart, over a tenth of the interval, of which a call
		// gathers a third. What has once been together stays so, in groups of at most 500.
		if calls := s.calls(); calls > rounds*9 {
			t.Errorf("%d calls in %d rounds of %d leases", calls, rounds, n)
		}
		if singles := s.Renewals.Load(); singles > rounds {
			t.Errorf("%d renewals were made alone", singles)
		}
		renewed := eventsOf[worklease.RenewEvent](rec)
		if len(renewed) < n*(rounds-1) || len(renewed) > n*rounds*2 {
			t.Errorf("%d events of %d leases in %d rounds", len(renewed), n, rounds)
		}
		seen := make(map[worklease.Token]int)
		for _, e := range renewed {
			if e.Err != nil || e.Attempt != 1 {
				t.Fatalf("event %+v", e)
			}
			seen[e.Token]++
		}
		if len(seen) != n {
			t.Errorf("events of %d leases", len(seen))
		}
		all.stop()
	})
}

// Gathering takes from the wait, so that a lease is renewed when it would have been without others.
func TestGatheringKeepsToTheInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newBatchStore()
			var opts []worklease.RenewalOption
			want := batchTTL / 2
			if interval > 0 {
				opts, want = append(opts, worklease.WithRenewalInterval(interval)), interval
			}
			l := newLease(t, s, "a", batchTTL)
			var mu sync.Mutex
			last := make(map[string]time.Time)
			began := time.Now()
			s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, record := range records {
					since := last[record.WorkID]
					if since.IsZero() {
						since = began
					}
					if took := time.Since(since); took < want*85/100 || took > want {
						t.Errorf("%s was renewed after %v, want %v to %v", record.WorkID, took, want*85/100, want)
					}
					last[record.WorkID] = time.Now()
				}
				return s.renewEach(ctx, records, ttl)
			}
			s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
				_, err := s.OnBatch(ctx, []backend.LeaseRecord{record}, ttl)
				return err
			}
			all := startTenures(t, l, 10, opts...)
			time.Sleep(10 * want)
			mu.Lock()
			defer mu.Unlock()
			if len(last) != 10 || all.alive() != 10 {
				t.Errorf("%d were renewed, %d are alive", len(last), all.alive())
			}
			all.stop()
		})
	}
}

func TestCheckpointCountsAsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		l := newLease(t, s, "a", batchTTL)
		all := startTenures(t, l, 5)
		for range 20 {
			time.Sleep(batchTTL / 4)
			for _, token := range all.tokens {
				if err := l.Checkpoint(t.Context(), token, []byte("state")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := s.calls() + int(s.Renewals.Load()); n != 0 {
			t.Errorf("%d renewals of leases that were checkpointed every quarter of the TTL", n)
		}
		all.stop()
	})
}

// What the store says of one lease is no news of another.
func TestVerdictsOfABatchAreEachLeasesOwn(t *testing.T) {
	const n = 6
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		rec := new(recorder)
		l := newObserved(t, s, "a", batchTTL, rec)
		verdicts := map[string]error{
			"work-00001": backend.ErrFenced, "work-00002": backend.ErrLeaseExpired, "work-00003": backend.ErrBusy, "work-00004": errStore,
		}
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			answers, err := s.renewEach(ctx, records, ttl)
			for i, record := range records {
				if verdict := verdicts[record.WorkID]; verdict != nil {
					answers[i] = verdict
				}
			}
			return answers, err
		}
		busy := make(chan struct{})
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			switch verdict := verdicts[record.WorkID]; { // also of one that fell due alone
			case verdict == backend.ErrBusy:
				<-busy // its row is locked
			case verdict != nil:
				return verdict
			}
			return s.Backend.Renew(ctx, record, ttl)
		}
		all := startTenures(t, l, n)
		time.Sleep(batchTTL - time.Millisecond)
		for i, want := range []struct {
			lost  bool
			cause []error
		}{
			0: {}, 1: {true, []error{worklease.ErrFenced}},
			2: {true, []error{worklease.ErrLeaseWindowExhausted, worklease.ErrLeaseExpired}},
			3: {}, 4: {}, 5: {},
		} {
			ctx := all.ctxs[i]
			if lost := ctx.Err() != nil; lost != want.lost {
				t.Errorf("lease %d: lost = %v, cause %v", i, lost, context.Cause(ctx))
			}
			if want.lost {
				mustMatch(t, context.Cause(ctx), want.cause...)
			}
		}
		if w := windowOf(t, all.ctxs[0]); w < batchTTL/4 {
			t.Errorf("the window of a lease that was renewed closes in %v", w)
		}
		if w := windowOf(t, all.ctxs[3]); w != time.Millisecond {
			t.Errorf("the window of a lease that is busy closes in %v", w)
		}
		if w := windowOf(t, all.ctxs[4]); w != time.Millisecond {
			t.Errorf("the window of a lease that failed closes in %v", w)
		}
		fenced := eventsOf[worklease.FencedEvent](rec)
		if len(fenced) != 1 || fenced[0].Token != all.tokens[1] || fenced[0].Operation != worklease.OperationRenew {
			t.Errorf("fenced events: %v", fenced)
		}
		failures := 0
		for _, e := range eventsOf[worklease.RenewEvent](rec) {
			if e.Token == all.tokens[4] {
				if failures++; !errors.Is(e.Err, errStore) || e.Attempt != failures {
					t.Errorf("event %+v, want attempt %d to fail", e, failures)
				}
			}
		}
		if failures < 3 {
			t.Errorf("the lease that failed was tried %d times", failures)
		}
		all.stop()
		close(busy)
	})
}

func TestBusyLeaseIsRenewedWhenItsRowIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		rec := new(recorder)
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			answers, err := s.renewEach(ctx, records, ttl)
			for i, record := range records {
				if record.WorkID == "work-00003" {
					answers[i] = fmt.Errorf("worklease: renew %q: %w", record.WorkID, backend.ErrBusy)
				}
			}
			return answers, err
		}
		all := startTenures(t, newObserved(t, s, "a", batchTTL, rec), 4)
		time.Sleep(10 * batchTTL)
		if n := all.alive(); n != 4 {
			t.Errorf("%d leases are left", n)
		}
		if s.Renewals.Load() < 10 {
			t.Errorf("the busy lease was renewed alone %d times", s.Renewals.Load())
		}
		for _, e := range eventsOf[worklease.RenewEvent](rec) {
			if e.Err != nil || e.Attempt != 1 {
				t.Fatalf("event %+v: to be busy is no failure", e)
			}
		}
		all.stop()
	})
}

func TestStoppedLeasesAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		all := startTenures(t, newLease(t, s, "a", batchTTL), 10)
		time.Sleep(batchTTL/2*85/100 - time.Millisecond)
		start := time.Now()
		all.stop()
		if took := time.Since(start); took != 0 {
			t.Errorf("stopping took %v", took)
		}
		time.Sleep(batchTTL)
		if n := s.calls() + int(s.Renewals.Load()); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestLeasesStoppedWhileTheyAreGatheredAreNotSent(t *testing.T) {
	for i := range 20 { // some are being gathered at nearly every moment from when the first is due
		synctest.Test(t, func(t *testing.T) {
			s := newBatchStore()
			all := startTenures(t, newLease(t, s, "a", batchTTL), 200)
			time.Sleep(batchTTL/2*85/100 + time.Duration(i+1)*50*time.Millisecond)
			before := s.calls() + int(s.Renewals.Load())
			all.stop()
			time.Sleep(2 * batchTTL)
			if n := s.calls() + int(s.Renewals.Load()); n != before {
				t.Errorf("%d calls after all had been stopped", n-before)
			}
		})
	}
}

// Two renewals of one lease are two attempts: a row is changed once in a call.
func TestALeaseIsInABatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			seen := make(map[string]bool)
			for _, record := range records {
				if seen[record.WorkID] {
					t.Errorf("%s is in a batch twice", record.WorkID)
				}
				seen[record.WorkID] = true
			}
			return s.renewEach(ctx, records, ttl)
		}
		l := newLease(t, s, "a", batchTTL)
		all := startTenures(t, l, 20)
		for _, token := range all.tokens {
			ctx, stop := l.StartRenewal(t.Context(), token)
			all.ctxs, all.stops = append(all.ctxs, ctx), append(all.stops, stop)
		}
		time.Sleep(5 * batchTTL)
		if n := all.alive(); n != 40 {
			t.Errorf("%d renewals are alive", n)
		}
		all.stop()
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		all := startTenures(t, newLease(t, s, "a", batchTTL), 2000)
		time.Sleep(batchTTL)
		s.mu.Lock()
		sizes := slices.Clone(s.batches)
		s.mu.Unlock()
		for _, size := range sizes {
			if size > 500 {
				t.Errorf("a batch of %d", size)
			}
		}
		if n := all.alive(); n != 2000 {
			t.Errorf("%d leases are left", n)
		}
		all.stop()
	})
}

// A lease that is due sooner than the others shortens their wait for more.
func TestGatheringEndsWithTheMostUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		l := newLease(t, s, "a", batchTTL)
		last := time.Now()
		var mu sync.Mutex
		s.OnRenew = func(ctx context.Context, record backend.LeaseRecord, ttl time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			if record.WorkID == "urgent" {
				if took := time.Since(last); took > 100*time.Millisecond {
					t.Errorf("the urgent lease was renewed after %v", took)
				}
				last = time.Now()
			}
			return s.Backend.Renew(ctx, record, ttl)
		}
		s.OnBatch = func(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
			verdicts := make([]error, len(records))
			for i, record := range records {
				verdicts[i] = s.OnRenew(ctx, record, ttl)
			}
			return verdicts, nil
		}
		slow := startTenures(t, l, 30, worklease.WithRenewalInterval(batchTTL/2))
		token := acquire(t, l, "urgent")
		ctx, stop := l.StartRenewal(t.Context(), token, worklease.WithRenewalInterval(100*time.Millisecond))
		time.Sleep(3 * batchTTL)
		mustBeAlive(t, ctx)
		stop()
		slow.stop()
	})
}
