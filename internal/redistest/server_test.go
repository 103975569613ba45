package redistest_test

import (
	"net"
	"testing"

	"github.com/aetomala/worklease/internal/redistest"
)

func TestServerComesBackWhereItWas(t *testing.T) {
	server := redistest.New(t)
	server.Kill()
	if conn, err := net.Dial("tcp", server.Addr()); err == nil {
		conn.Close()
		t.Fatal("a server that was killed takes connections")
	}
	server.Kill() // of no effect
	server.Start()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
