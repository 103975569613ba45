package pgtest

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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
	verifier, err := scramVerifier(t.password)
	if err != nil {
		return err
	}
	pwfile, err := t.dir.write("password", verifier)
	if err != nil {
		return err
	}
	err = t.dir.do(log, filepath.Join(bin, "initdb"), "-D", t.data, "-U", "postgres",
		"--auth=password", "--pwfile="+pwfile, "--encoding=UTF8", "--no-locale", "--no-sync")
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("initdb: %w\n%s", err, said)
	}
	return nil
}

// scramVerifier returns what PostgreSQL stores of a password, and takes in place of one. It says to
// hash once instead of 4,096 times, which is for passwords that can be guessed. Together with clients
// that send the password as it is, over the loopback, it makes a new connection cheap: with hashes on
// both sides and the race detector it would take 20 ms more.
func scramVerifier(password string) (string, error) {
	const iterations = 1
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sign := func(message string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(message))
		return mac.Sum(nil)
	}
	storedKey := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s",
		iterations, encode(salt), encode(storedKey[:]), encode(sign("Server Key"))), nil
}
