package redis_test

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/internal/redistest"
)

func TestCheck(t *testing.T) {
	master := redistest.New(t)
	for name, row := range map[string]struct {
		args []string
		says string
	}{
		"as installed":         {nil, ""},
		"a limit, no eviction": {[]string{"--maxmemory", "100mb"}, ""},
		// No key of the store has an expiry.
		"evicts what expires":         {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}, ""},
		"evicts, but without a limit": {[]string{"--maxmemory-policy", "allkeys-lru"}, ""},
		"evicts":                      {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, "noeviction"},
		"a replica":                   {[]string{"--replicaof", "127.0.0.1 " + master.Port()}, "slave"},
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := open(t, dial(t, &goredis.Options{Addr: redistest.New(t, row.args...).Addr()}))
			err := store.Check(t.Context())
			switch {
			case row.says == "":
				must(t, err)
			case err == nil || !strings.Contains(err.Error(), row.says):
				t.Errorf("Check says %v", err)
			}
		})
	}
	store, _ := open(t, cluster(t))
	must(t, store.Check(t.Context()))
}
