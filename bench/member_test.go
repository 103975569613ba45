package bench

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/aetomala/worklease"
	"github.com/aetomala/worklease/backend/postgres"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// memberVariable has what a process of a fleet is to do. Without it the process runs the tests.
const memberVariable = "WORKLEASE_BENCH_MEMBER"

func TestMain(m *testing.M) {
	if task := os.Getenv(memberVariable); task != "" {
		if err := beMember(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// duty is what a process of a fleet is to do: hold leases, and have them renewed as they are by default.
type duty struct {
	DSN         string
	Name        string // begins the work IDs
	Leases      int
	TTL         time.Duration
	Connections int
}

// word is what a process says: at first when it has its leases, and then when it is asked to.
type word struct {
	Lost       int
	Made       int // renewals, since the last word
	Failed     int // attempts, since the last word
	Trouble    string
	Late       time.Duration // of the renewal that was the latest since the last word
	Goroutines int
	Heap       uint64 // what was alive at the last collection
}

// beMember acquires leases, and answers each line that it reads with a word. It ends when there are no more.
func beMember(task string) error {
	var d duty
	if err := json.Unmarshal([]byte(task), &d); err != nil {
		return err
	}
	db, err := sql.Open("pgx", d.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(d.Connections)
	db.SetMaxIdleConns(d.Connections)
	store, err := postgres.New(db)
	if err != nil {
		return err
	}
	m := &member{interval: d.TTL / 2, last: make(map[string]time.Time, d.Leases)}
	lease, err := worklease.New(store, worklease.Config{TTL: d.TTL, HolderID: d.Name, Observer: m})
	if err != nil {
		return err
	}
	if err := m.acquire(lease, d); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); ; {
		if err := out.Encode(m.word()); err != nil {
			return err
		}
		if !lines.Scan() {
			return lines.Err()
		}
	}
}

// member keeps the books of a process.
type member struct {
	worklease.NoopObserver
	interval time.Duration // in which a renewal is due at the latest
	held     []context.Context

	mu   sync.Mutex
	last map[string]time.Time // beginning of the last success
	sum  word                 // since the last one
}

func (m *member) acquire(lease worklease.Lease, d duty) error {
	var (
		all  sync.WaitGroup
		errs = make([]error, d.Connections)
	)
	m.held = make([]context.Context, d.Leases)
	for c := range d.Connections {
		all.Go(func() {
			for i := c; i < d.Leases && errs[c] == nil; i += d.Connections {
				var token worklease.Token
				if token, errs[c] = lease.Acquire(context.Background(), fmt.Sprintf("%s-%06d", d.Name, i)); errs[c] == nil {
					m.held[i], _ = lease.StartRenewal(context.Background(), token)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (m *member) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	if e.Err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[e.WorkID] = time.Now().Add(-e.Duration)
}

func (m *member) OnRenew(_ context.Context, e worklease.RenewEvent) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Err != nil {
		m.sum.Failed++
		m.sum.Trouble = e.Err.Error()
		return
	}
	workID := e.Token.WorkID()
	m.sum.Late = max(m.sum.Late, now.Sub(m.last[workID].Add(m.interval)))
	m.sum.Made++
	m.last[workID] = now.Add(-e.Duration)
}

// word says what has been, and begins anew.
func (m *member) word() word {
	m.mu.Lock()
	w := m.sum
	m.sum = word{}
	m.mu.Unlock()
	for _, renewCtx := range m.held {
		if renewCtx.Err() != nil {
			w.Lost++
			if w.Trouble == "" {
				w.Trouble = context.Cause(renewCtx).Error()
			}
		}
	}
	w.Goroutines = runtime.NumGoroutine()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	w.Heap = live[0].Value.Uint64()
	return w
}
