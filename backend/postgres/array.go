package postgres

import (
	"strconv"
	"strings"
)

var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// textArray writes values as PostgreSQL writes an array. It is sent as text, which every driver can do in
// every mode, and cast by the server.
func textArray(values []string) string {
	size := len("{}")
	for _, v := range values {
		size += len(v) + len(`"",`)
	}
	var b strings.Builder
	b.Grow(size)
	for i, v := range values {
		b.WriteString(opening(i) + `"`)
		_, _ = quoting.WriteString(&b, v) // a Builder takes everything
		b.WriteByte('"')
	}
	return closed(&b)
}

func intArray(values []int64) string {
	var b strings.Builder
	for i, v := range values {
		b.WriteString(opening(i))
		b.WriteString(strconv.FormatInt(v, 10))
	}
	return closed(&b)
}

// opening is what stands before the i-th element.
func opening(i int) string {
	if i == 0 {
		return "{"
	}
	return ","
}

func closed(b *strings.Builder) string {
	if b.Len() == 0 {
		return "{}"
	}
	b.WriteByte('}')
	return b.String()
}
