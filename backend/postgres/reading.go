package postgres

import (
	"database/sql"

	"github.com/aetomala/worklease/backend"
)

// reading is what the columns of a checkpoint are scanned into. A nil reading has none.
type reading struct {
	found                backend.Checkpoint
	prevExit, prevHolder sql.NullString
}

func (r *reading) columns() []any {
	if r == nil {
		return nil
	}
	return []any{&r.found.State, &r.prevExit, &r.prevHolder}
}

// understand completes found from what was scanned.
func (r *reading) understand() (err error) {
	if r == nil {
		return nil
	}
	r.found.PrevHolderID = r.prevHolder.String
	r.found.PrevExit, err = exitMode(r.prevExit.String)
	return err
}
