package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

var (
	errAnswer = errors.New("the script answers in words that are not its own")
	errStuck  = fmt.Errorf("%d calls are stuck in the client: the network is silent; ReadTimeout and WriteTimeout of the client bound that", prompt.MaxStuck)
)

// verdict is the error that the first word of an answer stands for.
func verdict(word string) error {
	switch word {
	case "ok":
		return nil
	case "fenced":
		return backend.ErrFenced
	case "expired":
		return backend.ErrLeaseExpired
	}
	return fmt.Errorf("%w: %q", errAnswer, word)
}

// cures says what to do about the errors of a server that is not set up as it must be, by the code that
// Redis puts first.
var cures = []struct{ code, cure string }{
	{"OOM", "the server has no memory left: leases must not be evicted, so give it more, or sweep"},
	{"READONLY", "this server is a replica: the client must be told of the master, as Sentinel does"},
	{"NOREPLICAS", "too few replicas are connected: see min-replicas-to-write"},
	{"MISCONF", "the server refuses writes because it cannot save: see stop-writes-on-bgsave-error"},
	{"NOPERM", "the user needs the keys of the store and the commands that docs/redis.md lists"},
	{"WRONGTYPE", "a key of the store is used by somebody else: choose another prefix"},
	{"CROSSSLOT", "the keys are on several servers: a proxy that does not know hash tags is no cluster"},
}

// failed is the one place where an error gets its context, and what can be done about it.
func failed(ctx context.Context, op string, err error) error {
	for _, c := range cures {
		if goredis.HasErrorPrefix(err, c.code) {
			err = fmt.Errorf("%w (%s)", err, c.cure)
			break
		}
	}
	return prompt.Failed(ctx, "redis: "+op, err)
}
