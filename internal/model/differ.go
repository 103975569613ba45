package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aetomala/worklease/backend"
)

// classes are what an error can be.
var classes = []error{
	backend.ErrFenced, backend.ErrLeaseHeld, backend.ErrLeaseExpired, backend.ErrInvalidExitMode,
	context.Canceled, context.DeadlineExceeded,
}

// Class returns which of the contract's errors err is. ok is false if it is none of them, or several; a
// nil err is a class of its own.
func Class(err error) (class error, ok bool) {
	for _, c := range classes {
		if errors.Is(err, c) {
			if ok {
				return nil, false
			}
			class, ok = c, true
		}
	}
	return class, ok || err == nil
}

func sameClass(got, want error) bool {
	g, known := Class(got)
	w, _ := Class(want)
	return known && errors.Is(g, w) // each is one of the classes, or nil
}

// differs says in what got is not want. Instants may be apart by as much as spread.
func (want Result) differs(got Result, spread time.Duration) error {
	if !sameClass(got.Err, want.Err) {
		return fmt.Errorf("the error is %v, want %v", got.Err, want.Err)
	}
	var errs []error
	check := func(what string, equal bool, got, want any) {
		if !equal {
			errs = append(errs, fmt.Errorf("%s is %v, want %v", what, got, want))
		}
	}
	wantRecord, gotRecord := want.Record, got.Record
	check("ExpiresAt", near(gotRecord.ExpiresAt, wantRecord.ExpiresAt, spread), gotRecord.ExpiresAt, wantRecord.ExpiresAt)
	wantRecord.ExpiresAt, gotRecord.ExpiresAt = time.Time{}, time.Time{}
	check("the record", gotRecord == wantRecord, gotRecord, wantRecord)

	check("the state", bytes.Equal(got.Found.State, want.Found.State) && (got.Found.State == nil) == (want.Found.State == nil),
		fmt.Sprintf("%#v", got.Found.State), fmt.Sprintf("%#v", want.Found.State))
	check("PrevExit", got.Found.PrevExit == want.Found.PrevExit, got.Found.PrevExit, want.Found.PrevExit)
	check("PrevHolderID", got.Found.PrevHolderID == want.Found.PrevHolderID, got.Found.PrevHolderID, want.Found.PrevHolderID)
	check("the number of rows deleted", got.Deleted == want.Deleted, got.Deleted, want.Deleted)

	wantHeld, _ := errors.AsType[*backend.HeldError](want.Err)
	if gotHeld, known := errors.AsType[*backend.HeldError](got.Err); known {
		check("HeldError.WorkID", gotHeld.WorkID == wantHeld.WorkID, gotHeld.WorkID, wantHeld.WorkID)
		check("HeldError.HolderID", gotHeld.HolderID == wantHeld.HolderID, gotHeld.HolderID, wantHeld.HolderID)
		check("HeldError.ExpiresAt", gotHeld.ExpiresAt.Equal(wantHeld.ExpiresAt), gotHeld.ExpiresAt, wantHeld.ExpiresAt)
	}
	return errors.Join(errs...)
}

// differ says in what the rows of a store are not those of the model. In the row that the operation was
// about, instants may be apart by as much as spread. It returns nil if got is nil.
func differ(want, got map[string]Row, about string, spread time.Duration) error {
	if got == nil {
		return nil
	}
	all := maps.Clone(got)
	maps.Copy(all, want)
	var errs []error
	for _, workID := range slices.Sorted(maps.Keys(all)) {
		w, g, apart := want[workID], got[workID], spread
		if workID != about {
			apart = 0
		}
		if g.UpdatedAt.IsZero() {
			w.UpdatedAt = time.Time{}
		}
		same := w
		same.ExpiresAt, same.UpdatedAt = g.ExpiresAt, g.UpdatedAt
		if g != same || !near(g.ExpiresAt, w.ExpiresAt, apart) || !near(g.UpdatedAt, w.UpdatedAt, apart) {
			errs = append(errs, fmt.Errorf("the row of %q is\n%+v, want\n%+v", workID, g, w))
		}
	}
	return errors.Join(errs...)
}

func near(a, b time.Time, spread time.Duration) bool { return a.Sub(b).Abs() <= spread }

// follow removes the rows that were not yet due for a Sweep as it began, but were as it ended, and that
// are gone. It returns their number.
func (s *Store) follow(late Store, rows map[string]Row) (gone int64) {
	for workID := range s.Rows {
		if !late.Rows[workID].Exists() && !rows[workID].Exists() {
			delete(s.Rows, workID)
			gone++
		}
	}
	return gone
}

// adopt takes over the instants that a store with a clock of its own has stored.
func (s *Store) adopt(rows map[string]Row) {
	for workID, row := range rows {
		mine := s.Rows[workID]
		mine.ExpiresAt = row.ExpiresAt
		if !row.UpdatedAt.IsZero() {
			mine.UpdatedAt = row.UpdatedAt
		}
		s.Rows[workID] = mine
	}
}
