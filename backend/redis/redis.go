// Package redis keeps leases in Redis, for any number of processes. It follows every rule of
// [backend.Backend] as long as the server keeps what it has acknowledged. A Redis that fails over, or that
// loses power, may not: docs/redis.md says what is lost then, how to make that less, and when to use the
// PostgreSQL store instead.
//
// It works with a single server, behind Sentinel and with a cluster. It needs Redis 5 or later, and
// maxmemory-policy noeviction.
package redis

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
	"github.com/aetomala/worklease/internal/wake"
)

// Backend is a store in Redis. It has the capabilities [backend.AcquireReader], [backend.BatchRenewer],
// [backend.CheckpointReleaser], [backend.DelayedReleaser] and [backend.Looker], and is a [backend.Waker] that
// tells something if made with [WithWakeUps]. It is safe for concurrent use, and made by [New].
//
// Each operation is one script and one round trip; a Sweep takes two for every 500 rows that it looks at. No call is sent
// twice, whatever MaxRetries of the client: a Release that was applied and whose answer was lost must
// not be sent again, and be refused. Only where the server says that it does not know a script, or that
// another server of the cluster has the key, nothing has run and the call goes on.
type Backend struct {
	client goredis.UniversalClient
	prefix string
	keys   keys
	calls  prompt.Calls
	ear    *wake.Ear // nil without WithWakeUps
}

var (
	_ backend.Backend            = (*Backend)(nil)
	_ backend.AcquireReader      = (*Backend)(nil)
	_ backend.BatchRenewer       = (*Backend)(nil)
	_ backend.CheckpointReleaser = (*Backend)(nil)
	_ backend.DelayedReleaser    = (*Backend)(nil)
	_ backend.Looker             = (*Backend)(nil)
	_ backend.Waker              = (*Backend)(nil)
)

// DefaultPrefix is what the keys of a store begin with, in braces, unless it has another prefix.
const DefaultPrefix = "worklease"

const maxPrefix = 256

// Option configures a Backend.
type Option func(*Backend)

// WithPrefix sets the prefix of the keys. Stores with one prefix are one store, with one order of tokens;
// stores with different ones share nothing, and may be on different servers of a cluster. The store puts
// the prefix in braces, so that a cluster keeps all of its keys on one server, where a script can use
// them: it must not be empty, contain braces or NUL, or have more than 256 bytes.
func WithPrefix(prefix string) Option { return func(b *Backend) { b.prefix = prefix } }

// New returns a store that uses client, which it never closes. It talks to no server; [Backend.Check] does.
//
// A nil client, a [goredis.Ring] and a bad prefix are errors. A Ring takes another server when one is
// down, and so would have two holders for one lease. Nil options are ignored.
func New(client goredis.UniversalClient, opts ...Option) (*Backend, error) {
	switch c := client.(type) {
	case nil:
		return nil, errors.New("redis: the client is nil")
	case *goredis.Client:
		if c == nil {
			return nil, errors.New("redis: the client is nil")
		}
	case *goredis.ClusterClient:
		if c == nil {
			return nil, errors.New("redis: the client is nil")
		}
	case *goredis.Ring:
		return nil, errors.New("redis: a Ring cannot keep leases: it takes another server when one is down")
	}
	b := &Backend{client: client, prefix: DefaultPrefix}
	for _, opt := range opts {
		if opt != nil {
			opt(b)
		}
	}
	if err := checkPrefix(b.prefix); err != nil {
		return nil, fmt.Errorf("redis: the prefix %q %w", b.prefix, err)
	}
	b.keys = newKeys(b.prefix)
	return b, nil
}

func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New("is empty: a cluster would spread the keys over its servers")
	case strings.ContainsAny(prefix, "{}"):
		return errors.New("contains braces: the store adds them, around all of it")
	case strings.IndexByte(prefix, 0) >= 0:
		return errors.New("contains a NUL byte")
	case !utf8.ValidString(prefix):
		return errors.New("is not valid UTF-8")
	case len(prefix) > maxPrefix:
		return fmt.Errorf("has %d bytes, more than %d", len(prefix), maxPrefix)
	}
	return nil
}

// keys are the names of what a store keeps. Leases are hashes; that which is not a lease is one key each.
type keys struct {
	leases  string // what the key of a lease begins with
	tokens  string // the last token
	open    string // work IDs with no exit declared, by their last update
	retired string // work IDs that were retired, by when
	freed   string // no key but a channel: work IDs that become free
}

func newKeys(prefix string) keys {
	tag := "{" + prefix + "}:"
	return keys{leases: tag + "l:", tokens: tag + "tokens", open: tag + "open", retired: tag + "retired", freed: tag + "freed"}
}

func (k keys) lease(workID string) string { return k.leases + workID }
