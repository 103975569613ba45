package backend

import "context"

// Looker is the capability of a store that tells which of many work IDs could be acquired now. Without
// it, an Acquire of each tells.
type Looker interface {
	// Free returns those of workIDs that have no row or whose row's expiry has passed, in the order of
	// workIDs and as often as they occur there. It is one read, which locks and writes nothing, and a
	// hint: by the time that it is returned somebody may have acquired what was free, or given up what
	// was held. It keeps no reference to workIDs. It is meant for up to about 10,000 of them.
	Free(ctx context.Context, workIDs []string) ([]string, error)
}
