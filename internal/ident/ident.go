// Package ident says which work IDs and holder IDs every store can keep.
package ident

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxBytes is the longest ID that every store can keep in an index.
const maxBytes = 1024

// Check returns what is wrong with id, as the rest of a sentence that begins with its name.
func Check(id string) error {
	switch {
	case id == "":
		return errors.New("is empty")
	case len(id) > maxBytes:
		return fmt.Errorf("has %d bytes, more than %d", len(id), maxBytes)
	case !utf8.ValidString(id):
		return errors.New("is not valid UTF-8")
	case strings.IndexByte(id, 0) >= 0:
		return errors.New("contains a NUL byte")
	}
	return nil
}
