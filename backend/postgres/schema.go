package postgres

import _ "embed"

// Schema is the definition of the table and the sequence, as several statements that may be run again.
//
//go:embed schema.sql
var Schema string
