// Command docker runs PostgreSQL in a container for the tests of worklease: it prints the URL of the
// server, waits until its standard input ends, which it does with the test process at the latest, and
// terminates the container.
//
// It is a module of its own to keep its many dependencies out of those of the library. It is built and
// vetted along with the rest, but the usual test run doesn't come here: that finds PostgreSQL's
// binaries first.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(stdin io.Reader, stdout io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	container, err := postgres.Run(ctx, "postgres:16-alpine",
		postgres.WithDatabase("postgres"),
		postgres.BasicWaitStrategies(),
		testcontainers.WithCmd("postgres", "-c", "max_connections=200"),
	)
	// Run returns what there is of a container along with an error.
	defer func() { err = errors.Join(err, testcontainers.TerminateContainer(container)) }()
	if err != nil {
		return err
	}
	dsn, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, dsn); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
