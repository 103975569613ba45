package pgtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// template is the data directory that initdb made, of which every cluster of the process gets a copy:
// initdb takes over a second of CPU and a copy a fraction of that.
type template struct {
	dir      *workdir // lives as long as the process
	data     string
	password string
}

// initialized makes the template once for each folder of binaries.
var initialized = struct {
	sync.Mutex
	by map[string]*template
}{by: make(map[string]*template)}

func templateFor(bin string) (*template, error) {
	initialized.Lock()
	defer initialized.Unlock()
	if t, ok := initialized.by[bin]; ok {
		return t, nil
	}
	dir, err := newWorkdir("worklease-pg-template-*")
	if err != nil {
		return nil, err
	}
	// With a password, since other users of the machine reach 127.0.0.1 too and a superuser of
	// a cluster can run programs as the user whose tests these are.
	t := &template{dir: dir, data: filepath.Join(dir.path, "data"), password: rand.Text()}
	if err := t.initdb(bin); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	initialized.by[bin] = t
	return t, nil
}

func (t *template) initdb(bin string) error {
	log, err := os.Create(filepath.Join(t.dir.path, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	pwfile, err := t.dir.write("password", t.password)
	if err != nil {
		return err
	}
	err = t.dir.do(log, filepath.Join(bin, "initdb"), "-D", t.data, "-U", "postgres",
		"--auth=scram-sha-256", "--pwfile="+pwfile, "--encoding=UTF8", "--no-locale", "--no-sync")
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("initdb: %w\n%s", err, said)
	}
	return nil
}
