package pgtest

import "encoding/binary"

// Codes that stand in a startup packet where the protocol version does otherwise.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// framer finds the messages of the PostgreSQL protocol, version 3, in one direction of a connection,
// however the bytes are cut into pieces. A message is a type byte, its length without that byte, and
// the rest; the first ones of a client, the startup packets, have no type byte.
type framer struct {
	startup bool // no type byte yet
	header  []byte
	left    int // bytes of the current message that are still to come
	kind    byte
}

// feed takes the next bytes and returns the types of the messages that end in them.
func (f *framer) feed(b []byte) (kinds []byte) {
	for len(b) > 0 {
		if f.left == 0 {
			need := 5
			if f.startup {
				need = 8 // with the code, which tells whether more startup packets follow
			}
			n := min(need-len(f.header), len(b))
			f.header, b = append(f.header, b[:n]...), b[n:]
			if len(f.header) < need {
				return kinds
			}
			f.parseHeader()
		}
		n := min(f.left, len(b))
		f.left, b = f.left-n, b[n:]
		if f.left == 0 && f.kind != 0 {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

func (f *framer) parseHeader() {
	if f.startup {
		f.kind = 0
		f.left = max(0, int(binary.BigEndian.Uint32(f.header))-8)
		switch binary.BigEndian.Uint32(f.header[4:]) {
		case sslRequest, gssRequest, cancelRequest:
		default:
			f.startup = false
		}
	} else {
		f.kind = f.header[0]
		f.left = max(0, int(binary.BigEndian.Uint32(f.header[1:]))-4)
	}
	f.header = f.header[:0]
}
