package backend

// Waker is the capability of a store that tells, as soon as it knows, that a work ID has become free.
// Without it, and beside it, those who wait ask again from time to time.
type Waker interface {
	// Wake returns a channel that receives a value after workID may have become free through a Release,
	// a Forget or a Sweep, or through a capability that does the same. Nobody tells that an expiry has
	// passed by itself, also that of a delayed release. A value says no more than that it is worth
	// trying: somebody else may have been faster.
	//
	// The channel holds one value, and is never closed: what comes while it is full adds nothing to it.
	// Each call has a channel of its own, and all of them for one work ID are told. Those who call Wake
	// before they try to acquire miss nothing that comes after. A wake-up may be lost all the same, as
	// with a connection, so that it spares no caller its poll. A nil channel, from a wrapper of a store
	// that is no Waker, or a store that was not set up to tell, never receives.
	//
	// stop, which is never nil and may be called again and by anybody, ends it: the store keeps nothing
	// of the channel then. Until it is called the store does.
	Wake(workID string) (woken <-chan struct{}, stop func())
}
