// Package checkpoint turns typed values into the bytes that a lease keeps, and back.
//
// A lease stores bytes and leaves their meaning to the caller. Most callers have a struct that says
// how far the work has come:
//
//	type progress struct {
//		LastID int64
//		Done   int
//	}
//
//	func importUsers(ctx context.Context, lease worklease.Lease, token worklease.Token, prior worklease.Checkpoint) error {
//		p, err := checkpoint.Decode[progress](checkpoint.JSON(), prior.State)
//		if err != nil {
//			return err
//		}
//		for next(ctx, &p) {
//			state, err := checkpoint.Encode(checkpoint.JSON(), p)
//			if err != nil {
//				return err
//			}
//			if err := lease.Checkpoint(ctx, token, state); err != nil {
//				return err
//			}
//		}
//		return ctx.Err()
//	}
//
// The first holder finds no state: prior.State is nil, and Decode returns the zero value, from which
// the work starts.
//
// A checkpoint is read by whichever process holds the lease next, and while a new version of a
// program is rolled out that may be an older one. Choose a format that both can read: with [JSON], a
// field that the reader does not know is left out, and one that it misses is zero.
//
// Any other format is a [Codec] of two methods.
package checkpoint
