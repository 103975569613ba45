package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed scripts
var files embed.FS

// script is a Lua program with the name that its server knows it by.
type script struct{ source, sha string }

var (
	acquireScript    = load("acquire")
	undoScript       = load("undo")
	checkpointScript = load("checkpoint")
	renewScript      = load("renew")
	releaseScript    = load("release")
	readScript       = load("read")
	forgetScript     = load("forget")
	freeScript       = load("free")
	candidatesScript = load("candidates")
	sweepScript      = load("sweep")
	checkScript      = load("check")
)

func load(name string) script {
	source := lua("prelude") + lua(name)
	sum := sha1.Sum([]byte(source)) // which is how Redis names scripts
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

func lua(name string) string {
	source, err := files.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // it is part of the binary
	}
	return string(source)
}

// once is a command that the client sends once only: go-redis would repeat one that got no answer, and
// what had been applied the first time would be refused the second.
type once struct{ *goredis.Cmd }

// NoRetry overrides that of the command within.
func (once) NoRetry() bool { return true }

// run runs a script and returns its answer, a list of strings. A server that does not know the script,
// after a restart or a failover, is sent it in full: it has run nothing.
func (b *Backend) run(ctx context.Context, s script, keys []string, args ...any) ([]string, error) {
	answer, err := b.eval(ctx, "evalsha", s.sha, keys, args)
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, err = b.eval(ctx, "eval", s.source, keys, args)
	}
	return answer, err
}

func (b *Backend) eval(ctx context.Context, command, program string, keys []string, args []any) ([]string, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, program, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := once{goredis.NewCmd(ctx, append(words, args...)...)}
	cmd.SetFirstKeyPos(3) // by which a cluster client finds the server
	if err := b.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.StringSlice()
}

// answer runs a script whose first word is its verdict, and returns the n that follow it with ok, or the
// sentinel that it stands for.
func (b *Backend) answer(ctx context.Context, n int, s script, keys []string, args ...any) ([]string, error) {
	words, err := b.run(ctx, s, keys, args...)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errAnswer
	}
	if err := verdict(words[0]); err != nil {
		return nil, err
	}
	if len(words) != n+1 {
		return nil, fmt.Errorf("%w: %d words, not %d", errAnswer, len(words), n+1)
	}
	return words[1:], nil
}
