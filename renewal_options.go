package worklease

import "time"

const (
	defaultBackoffInitial = 100 * time.Millisecond
	defaultBackoffMax     = 5 * time.Second
	defaultBackoffJitter  = 0.2
)

// RenewalOption changes how [Lease.StartRenewal] renews. A nil RenewalOption is ignored.
type RenewalOption func(renewalOptions) renewalOptions

type renewalOptions struct {
	interval     time.Duration
	initial, max time.Duration
	jitter       float64
}

// WithRenewalInterval makes a renewal due d, or up to 15 % less, after the start of the call that last
// moved the window. The default is half the TTL. A d of zero or less is ignored. One of the TTL or more
// cannot work and is taken as half the TTL; one below 1 ms is taken as 1 ms, or half the TTL if that
// is less.
func WithRenewalInterval(d time.Duration) RenewalOption {
	return func(o renewalOptions) renewalOptions {
		if d > 0 {
			o.interval = d
		}
		return o
	}
}

// WithRenewalBackoff sets how long to wait after a renewal attempt that failed: initial, doubled with
// each further failure up to maximum, plus a random part of up to the share jitter of it. The defaults are
// 100 ms, 5 s and 0.2. Durations below 1 ms are taken as 1 ms, jitter as the nearest in [0, 1], and an
// initial above maximum as maximum.
func WithRenewalBackoff(initial, maximum time.Duration, jitter float64) RenewalOption {
	return func(o renewalOptions) renewalOptions {
		o.max = max(maximum, time.Millisecond)
		o.initial = min(max(initial, time.Millisecond), o.max)
		o.jitter = 0
		if jitter > 0 { // not so for NaN
			o.jitter = min(jitter, 1)
		}
		return o
	}
}

func renewalOptionsFrom(opts []RenewalOption, ttl time.Duration) renewalOptions {
	o := renewalOptions{initial: defaultBackoffInitial, max: defaultBackoffMax, jitter: defaultBackoffJitter}
	for _, opt := range opts {
		if opt != nil {
			o = opt(o)
		}
	}
	if o.interval <= 0 || o.interval >= ttl {
		o.interval = ttl / 2
	}
	o.interval = max(o.interval, min(time.Millisecond, ttl/2))
	return o
}
