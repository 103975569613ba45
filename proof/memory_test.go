package proof

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/backend/memory"
	"github.com/aetomala/worklease/internal/faulty"
	"github.com/aetomala/worklease/internal/model"
)

var epoch = faulty.Epoch

// memoryWorld is a memory store whose clock can be moved and whose rows can be read.
type memoryWorld struct {
	store *memory.Backend
	clock *faulty.Clock
}

func newMemoryWorld() *memoryWorld {
	clock := new(faulty.Clock)
	return &memoryWorld{store: memory.New(memory.WithClock(clock)), clock: clock}
}

func (w *memoryWorld) config() model.Config {
	return model.Config{Backend: w.store, Clock: w, Rows: w}
}

func (w *memoryWorld) Now(context.Context) (time.Time, error) { return w.clock.Now(), nil }

func (w *memoryWorld) Advance(_ context.Context, d time.Duration) error {
	w.clock.Advance(d)
	return nil
}

// Rows looks into the store's own fields, which only this test has any business with. No call may be
// under way.
func (w *memoryWorld) Rows(context.Context) (_ map[string]model.Row, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the memory store has other fields than this test knows: %v", r)
		}
	}()
	rows := make(map[string]model.Row)
	shards := reflect.ValueOf(w.store).Elem().FieldByName("shards")
	for i := range shards.Len() {
		for stored := shards.Index(i).FieldByName("rows").MapRange(); stored.Next(); {
			row := stored.Value().Elem()
			if n := row.NumField(); n != 8 {
				return nil, errors.New("the rows of the memory store have other fields than this test knows")
			}
			rows[stored.Key().String()] = model.Row{
				HolderID:     *field[string](row, "holderID"),
				Token:        *field[uint64](row, "token"),
				ExpiresAt:    *field[time.Time](row, "expiresAt"),
				UpdatedAt:    *field[time.Time](row, "updatedAt"),
				State:        string(*field[[]byte](row, "state")),
				Exit:         *field[backend.ExitMode](row, "exit"),
				PrevExit:     *field[backend.ExitMode](row, "prevExit"),
				PrevHolderID: *field[string](row, "prevHolderID"),
			}
		}
	}
	return rows, nil
}

func field[T any](row reflect.Value, name string) *T {
	f := row.FieldByName(name)
	if f.Type() != reflect.TypeFor[T]() {
		panic("the field " + name + " has another type")
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}
