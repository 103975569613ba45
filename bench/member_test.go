package bench

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
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

// word is what a process says when it is asked to.
type word struct {
	Held, Lost int
	Made       int // renewals, since the last word
	Failed     int // attempts to acquire or renew, since the last word
	Trouble    string
	Late       time.Duration // of the renewal that was the latest since the last word
	Goroutines int
	Heap       uint64 // what was alive at the last collection
}

// beMember acquires leases, and meanwhile answers each line that it reads with a word. It ends when there are no more.
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
	for c := range d.Connections {
		go m.acquire(lease, d, c)
	}
	out, lines := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := out.Encode(m.word()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// member keeps the books of a process.
type member struct {
	worklease.NoopObserver
	interval time.Duration // in which a renewal is due at the latest

	mu   sync.Mutex
	held []context.Context
	last map[string]time.Time // beginning of the last success
	sum  word                 // since the last one
}

// acquire takes every so-many-th of the leases, each until it has it.
func (m *member) acquire(lease worklease.Lease, d duty, first int) {
	ctx := context.Background()
	for i := first; i < d.Leases; {
		token, err := lease.Acquire(ctx, fmt.Sprintf("%s-%06d", d.Name, i))
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		renewCtx, _ := lease.StartRenewal(ctx, token)
		m.mu.Lock()
		m.held = append(m.held, renewCtx)
		m.mu.Unlock()
		i += d.Connections
	}
}

func (m *member) OnAcquire(_ context.Context, e worklease.AcquireEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Err != nil {
		m.sum.Failed++
		m.sum.Trouble = e.Err.Error()
		return
	}
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
	defer m.mu.Unlock()
	w := m.sum
	m.sum = word{}
	for _, renewCtx := range m.held {
		if renewCtx.Err() == nil {
			w.Held++
			continue
		}
		w.Lost++
		if w.Trouble == "" {
			w.Trouble = context.Cause(renewCtx).Error()
		}
	}
	w.Goroutines = runtime.NumGoroutine()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	w.Heap = live[0].Value.Uint64()
	return w
}
