package postgres

import "context"

// channel is what is listened on: one for each table of a database. Its name is made by the server, since
// search_path says which table it is. Whoever is in the database may listen, hence no work ID is told.
const channel = `'worklease_' || 'worklease_leases'::regclass::oid`

// telling stands behind the name that a statement returns for a row, and tells of that row when the
// statement is committed.
const telling = ` || pg_notify(` + channel + `, left(encode(sha256(convert_to(work_id, 'UTF8')), 'hex'), 32))::text`

// queueFull is the code for a notification that the server has no room for, as when somebody who listens
// has left a transaction open for days.
const queueFull = "54000"

// freeing is a query after which a work ID is free, in two forms: the second tells of it.
type freeing struct{ quiet, telling query }

func freeingQuery(name string, text func(name, tell string) string) freeing {
	loud := name + " and tell"
	return freeing{quiet: query{name, text(name, "")}, telling: query{loud, text(loud, telling)}}
}

// tell is ask for what frees a work ID. If there is no room for the notification, the server has taken the
// whole statement back; it is sent without, and those who wait will poll. again is for both: what was sent
// before the one that was taken back may yet have run.
func (b *Backend) tell(ctx context.Context, q freeing, args []any, dest ...any) (found, again bool, err error) {
	if b.ear == nil {
		return b.ask(ctx, q.quiet, args, dest...)
	}
	found, again, err = b.ask(ctx, q.telling, args, dest...)
	if sqlState(err) != queueFull {
		return found, again, err
	}
	found, more, err := b.ask(ctx, q.quiet, args, dest...)
	return found, again || more, err
}

// channelQuery returns the name of the channel, and echoQuery says something on it that tells of nothing.
var channelQuery = query{"channel", `SELECT 'channel', ` + channel + ` WHERE $1::text = 'channel'`}

var echoQuery = query{"echo", `SELECT 'echo' || pg_notify(` + channel + `, '')::text WHERE $1::text = 'echo'`}
