package bench

import (
	"encoding/csv"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// redisBenchmark is a variant: redis-benchmark makes each of the calls for its share of the turn. An operation is
// one of each.
func redisBenchmark(t *testing.T, c *clock, program string, s *redisServer, calls []evalsha) variant {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	rates := make([]float64, len(calls)) // of the turn before
	run := func(call evalsha, requests int) (rate float64, cpu time.Duration) {
		t.Helper()
		args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(redisClients), "-n", strconv.Itoa(requests), "--csv", "EVALSHA", call.sha, strconv.Itoa(len(call.keys))}
		before := c.server()
		cmd := exec.CommandContext(t.Context(), program, append(append(args, call.keys...), call.args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("redis-benchmark: %v\n%s", err, out)
		}
		lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
		if err != nil || len(lines) < 2 || len(lines[1]) < 2 {
			t.Fatalf("redis-benchmark: %v\n%s", err, out)
		}
		if rate, err = strconv.ParseFloat(lines[1][1], 64); err != nil {
			t.Fatal(err)
		}
		return rate, c.server() - before + cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return func(d time.Duration) sample {
		t.Helper()
		var took, cpu float64 // seconds that one operation takes
		for i, call := range calls {
			requests := max(pick(2000, 100), int(rates[i]*d.Seconds()/float64(len(calls))))
			rate, used := run(call, requests)
			rates[i] = rate
			took += 1 / rate
			cpu += used.Seconds() / float64(requests)
		}
		return sample{rate: 1 / took, cpu: cpu}
	}
}

// findRedisBenchmark returns "" if there is none and nothing depends on it.
func findRedisBenchmark(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-benchmark")
	switch {
	case err == nil:
		return program
	case *tables:
		t.Fatal(err)
	}
	t.Logf("the store is not compared with it: %v", err)
	return ""
}
