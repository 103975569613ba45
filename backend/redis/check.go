package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// oldest is the first major version in which a script may read the clock and then write.
const oldest = 5

// Check asks the server that keeps the leases for what would do harm later: a version before 5, a limit of memory
// at which it evicts keys without an expiry, which is how a lease, its checkpoint or the last token would be
// lost, and that it is a replica; with [WithWakeUps], that wake-ups are not permitted. It needs the command INFO, and says nothing of how the server saves.
func (b *Backend) Check(ctx context.Context) error {
	return b.promptly(ctx, "check", func(ctx context.Context) error {
		words, err := b.run(ctx, checkScript, []string{b.keys.tokens})
		if err != nil {
			return err
		}
		if len(words) != 4 {
			return fmt.Errorf("%w: %d words", errAnswer, len(words))
		}
		version, role, memory, policy := words[0], words[1], words[2], words[3]
		var errs []error
		first, _, _ := strings.Cut(version, ".")
		if major, err := strconv.Atoi(first); err != nil || major < oldest {
			errs = append(errs, fmt.Errorf("the version is %q, and %d is needed", version, oldest))
		}
		if role != "master" {
			errs = append(errs, fmt.Errorf("the server is a %s, not the master", role))
		}
		if memory != "0" && strings.HasPrefix(policy, "allkeys") {
			errs = append(errs, fmt.Errorf("maxmemory-policy is %s: it must be noeviction", policy))
		}
		if b.ear != nil {
			errs = append(errs, b.checkWakeUps(ctx))
		}
		return errors.Join(errs...)
	}, nil)
}
