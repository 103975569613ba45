// Package worklease leases named work and hands the last holder's checkpoint to the next one.
package worklease
