package scheduletest_test

import (
	"context"
	"testing"

	"github.com/aetomala/worklease/schedule"
	"github.com/aetomala/worklease/schedule/scheduletest"
)

func charge(ctx context.Context) uint64 {
	return schedule.MustHold(ctx).FencingToken()
}

func TestCodeThatMustNotRunUnlocked(t *testing.T) {
	if charge(scheduletest.Context(t)) == 0 {
		t.Error("no fencing token")
	}
}
