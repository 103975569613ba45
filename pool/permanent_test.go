package pool_test

import (
	"errors"
	"testing"

	"github.com/aetomala/worklease/pool"
)

func TestPermanent(t *testing.T) {
	if err := pool.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) = %v", err)
	}
	err := pool.Permanent(errWork)
	if err.Error() != errWork.Error() || !errors.Is(err, errWork) {
		t.Errorf("Permanent(%v) = %v", errWork, err)
	}
	var permanent pool.PermanentError
	if !errors.As(err, &permanent) || !permanent.Permanent() {
		t.Errorf("%v is no PermanentError", err)
	}
}
