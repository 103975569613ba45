package pool

import (
	"math/rand/v2"
	"time"
)

const (
	// jitterShare is what a wait may have on top of its interval.
	jitterShare = 0.2
	// firstGap is the most that lies between the first attempts of two slots: free work is begun soon,
	// also if the idle interval is long.
	firstGap = 2 * time.Millisecond
	// roundsToPhase is how many waits it takes a slot to come to its place. Shifting by at most half a
	// period in six equal parts stays within the tenth of the interval that there is on either side.
	roundsToPhase = 6
)

// pacing says when an idle slot makes its attempts, if no look tells what is free. The slots of a pool repeat theirs with a common period
// of 1.1 idle intervals, the middle of what a wait may last, and each has its own place in it: so they are
// spread evenly, which waits drawn at random take dozens of rounds to become. Slots that got out of
// their places together, by losing their leases all at once, say, drift back in equal steps rather than as
// one crowd.
type pacing struct {
	start  time.Time     // of the pool's Run
	idle   time.Duration // the interval
	first  time.Duration // from start to the first attempt
	phase  time.Duration // from start, modulo the period
	rounds int           // to go until the slot is in its place
}

// pacings returns that of each of n slots, in random order: processes that start together each get
// some of the work. The phases begin at random, lest many small pools keep step with each other.
func pacings(start time.Time, n int, idle time.Duration) []pacing {
	all := make([]pacing, n)
	between := period(idle) / time.Duration(n)
	shift := rand.N(max(between, 1))
	for place, i := range rand.Perm(n) {
		at := time.Duration(place)
		all[i] = pacing{
			start: start, idle: idle,
			first:  at * min(between, firstGap),
			phase:  at*between + shift,
			rounds: roundsToPhase,
		}
	}
	return all
}

func period(idle time.Duration) time.Duration { return idle + idle/10 }

// wait returns how long to wait from now for the next attempt, at least the interval and at most 20 % more.
func (p *pacing) wait(now time.Time) time.Duration {
	period := period(p.idle)
	late := (now.Sub(p.start) - p.phase) % period
	switch { // to the nearest place, be it before or after
	case late > period/2:
		late -= period
	case late < -period/2:
		late += period
	}
	if late.Abs() > p.idle/10 { // more than one wait can make up for
		late /= time.Duration(p.rounds)
	}
	p.rounds = max(p.rounds-1, 1)
	return min(max(period-late, p.idle), p.idle+p.idle/5)
}

// until returns how long it is from now to the slot's place, less than a period.
func (p *pacing) until(now time.Time) time.Duration {
	period := period(p.idle)
	d := (p.phase - now.Sub(p.start)) % period
	if d < 0 {
		d += period
	}
	return d
}

// displaced says that the slot did something other than be idle.
func (p *pacing) displaced() { p.rounds = roundsToPhase }
