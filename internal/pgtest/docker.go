package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// dockerContainer is the program in the docker folder. It terminates its container when its standard
// input ends, which it does with the test process at the latest.
type dockerContainer struct {
	cmd   *exec.Cmd
	stdin *os.File
}

// startDocker runs the program in the docker folder, a module of its own so that what it needs to talk
// to Docker does not become a requirement of this one.
func startDocker() (_ *url.URL, _ *dockerContainer, err error) {
	if !dockerMayRun() {
		return nil, nil, errors.New("there are no PostgreSQL binaries and no Docker")
	}
	// Not by runtime.Caller, which knows no folder under -trimpath.
	const module = "github.com/aetomala/worklease/internal/pgtest"
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("looking for the folder of %s: %w", module, err)
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer stdin.Close()
	answer, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, hold.Close())
	}
	defer answer.Close()
	defer stdout.Close()
	stderr, err := os.CreateTemp("", "worklease-docker-*")
	if err != nil {
		return nil, nil, errors.Join(err, hold.Close())
	}
	defer func() { err = errors.Join(err, stderr.Close(), os.Remove(stderr.Name())) }()

	c := &dockerContainer{cmd: exec.Command("go", "run", "."), stdin: hold}
	c.cmd.Dir = strings.TrimSpace(string(dir)) + "/docker"
	c.cmd.Env = append(os.Environ(), "GOWORK=off")
	c.cmd.SysProcAttr = detached(false)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdin, stdout, stderr
	if err := c.cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, hold.Close())
	}
	// The other copy of stdout must be the only one for its end to be seen.
	if err := stdout.Close(); err != nil {
		return nil, nil, errors.Join(err, c.end())
	}
	// Time enough to build the program and to pull the image.
	if err := answer.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		return nil, nil, errors.Join(err, c.end())
	}
	line, err := bufio.NewReader(answer).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(stderr.Name())
		return nil, nil, fmt.Errorf("starting PostgreSQL in Docker: %w\n%s", errors.Join(err, c.end()), said)
	}
	u, err := parseDSN(strings.TrimSpace(line))
	if err != nil {
		return nil, nil, errors.Join(err, c.end())
	}
	return u, c, nil
}

// end lets the program end and waits for it.
func (c *dockerContainer) end() error { return errors.Join(c.stdin.Close(), c.cmd.Wait()) }

// dockerMayRun keeps machines without Docker from building a large program just to learn that.
func dockerMayRun() bool {
	if os.Getenv("DOCKER_HOST") != "" {
		return true
	}
	if _, err := exec.LookPath("docker"); err == nil {
		return true
	}
	_, err := os.Stat("/var/run/docker.sock")
	return err == nil
}
