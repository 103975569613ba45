package postgres

// query is a statement that knows its own name. The name is its first parameter: the statement
// compares it, so that it does nothing for anybody who meant another one, and returns it, so that the
// caller knows which one answered. Behind a pooler that separates the parsing of a statement from its
// execution, this is the difference between an error and somebody else's lease being released.
//
// Times are compared with clock_timestamp(), which goes on while a statement waits for a lock. There
// is one exception: an UPDATE that waited for a row which was then not changed, as by a rollback, keeps
// the times from before the wait. Nobody can have taken the lease meanwhile, and what is over on arrival
// is no success. Times are returned as microseconds, whatever the session's time zone and date style.
// Parameters are cast, since some drivers send them as untyped text.
type query struct{ name, text string }

// acquireQuery returns one row in any case: the acquisition, or who stood in its way.
var acquireQuery = acquiring("acquire", `'acquire'`)

// acquireReadQuery also returns what the new holder reads.
var acquireReadQuery = acquiring("acquire and read", hexadecimal("acquire and read"), "checkpoint", "prev_exit_mode", "prev_holder_id")

func acquiring(name, answer string, more ...string) query {
	var returned, selected string
	for _, column := range more {
		returned += ", " + column
		selected += ", won." + column
	}
	return query{name, `
WITH won AS (
  INSERT INTO worklease_leases AS l (work_id, holder_id, expires_at, acquired_at, updated_at)
  SELECT $2::text, $3::text, clock_timestamp() + $4::bigint * interval '1 microsecond', clock_timestamp(), clock_timestamp()
  WHERE $1::text = '` + name + `'
    -- A look that takes no lock: whoever asks for a held lease writes nothing and delays nobody.
    AND NOT EXISTS (SELECT FROM worklease_leases WHERE work_id = $2::text AND expires_at > clock_timestamp())
  ON CONFLICT (work_id) DO UPDATE SET
    holder_id = EXCLUDED.holder_id,
    -- Drawn here, under the row's lock; and above the row's own, should the sequence lag behind.
    fencing_token = greatest(nextval('worklease_fencing_seq'), l.fencing_token + 1),
    expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond',
    exit_mode = NULL,
    prev_exit_mode = coalesce(l.exit_mode, 'expired'),
    prev_holder_id = l.holder_id,
    acquired_at = clock_timestamp(),
    updated_at = clock_timestamp()
  WHERE l.expires_at <= clock_timestamp()
  RETURNING fencing_token, expires_at,
    -- A lease may be over on arrival: its time may be from before a wait.
    expires_at > clock_timestamp() AS live,
    -- A row that was not there could not be locked before its token was drawn. If another has been drawn
    -- since, it may be that of a holder who came and went in between.
    prev_exit_mode = 'none' AND fencing_token < pg_sequence_last_value('worklease_fencing_seq') AS stalled` + returned + `
)
SELECT ` + answer + `, won.fencing_token, won.live, won.stalled, held.holder_id,
  (extract(epoch FROM coalesce(won.expires_at, held.expires_at)) * 1000000)::bigint, held.exit_mode` + selected + `
FROM (SELECT) AS always
LEFT JOIN won ON true
LEFT JOIN worklease_leases AS held
  ON won.fencing_token IS NULL AND held.work_id = $2::text AND held.expires_at > clock_timestamp()
WHERE $1::text = '` + name + `'`}
}

// hexadecimal is a column with a statement's name that sets, for the transaction of the statement, how
// bytes are written as text, if that is not what all drivers can read.
func hexadecimal(name string) string {
	return `CASE WHEN current_setting('bytea_output') = 'hex' OR set_config('bytea_output', 'hex', true) = 'hex' THEN '` + name + `' END`
}

// redrawQuery gives a new row a token that is drawn under its lock.
var redrawQuery = query{"redraw", `
UPDATE worklease_leases SET fencing_token = greatest(nextval('worklease_fencing_seq'), fencing_token + 1)
WHERE $1::text = 'redraw'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
RETURNING 'redraw', fencing_token, expires_at > clock_timestamp()`}

// holderQuery says who holds a lease, where acquireQuery could not: the row changed hands while it ran.
var holderQuery = query{"holder", `
SELECT 'holder', l.holder_id, (extract(epoch FROM l.expires_at) * 1000000)::bigint, l.exit_mode
FROM (SELECT) AS always
LEFT JOIN worklease_leases AS l ON l.work_id = $2::text AND l.expires_at > clock_timestamp()
WHERE $1::text = 'holder'`}

// undoAcquireQuery and undoFirstAcquireQuery take back an acquisition that nobody has heard of: the next
// one finds the state, the exit and the holder that this one found. The token stays as it is.
var undoAcquireQuery = freeingQuery("undo acquire", func(name, tell string) string {
	return `
UPDATE worklease_leases SET
  holder_id = coalesce(prev_holder_id, holder_id),
  expires_at = clock_timestamp(),
  exit_mode = CASE WHEN prev_exit_mode IN ('finished', 'abandoned', 'retired') THEN prev_exit_mode END
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND prev_exit_mode <> 'none'
RETURNING '` + name + `'` + tell
})

var undoFirstAcquireQuery = freeingQuery("undo first acquire", func(name, tell string) string {
	return `
DELETE FROM worklease_leases
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND prev_exit_mode = 'none'
RETURNING '` + name + `'` + tell
})

var checkpointQuery = query{"checkpoint", `
UPDATE worklease_leases SET
  checkpoint = $6::bytea,
  expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond',
  updated_at = clock_timestamp()
WHERE $1::text = 'checkpoint'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
RETURNING 'checkpoint', expires_at > clock_timestamp()`}

// renewQuery leaves updated_at alone. It stands behind the checkpoint in the row, and WAL holds all
// between the first changed byte and the last.
var renewQuery = query{"renew", `
UPDATE worklease_leases SET
  expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
WHERE $1::text = 'renew'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
  AND expires_at > clock_timestamp()
RETURNING 'renew', expires_at > clock_timestamp()`}

var releaseQuery = freeingQuery("release", func(name, tell string) string {
	return `
UPDATE worklease_leases SET
  exit_mode = $5::text,
  expires_at = clock_timestamp(),
  updated_at = clock_timestamp()
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
  AND expires_at > clock_timestamp()
RETURNING '` + name + `'` + tell
})

// releaseAfterQuery ends the tenure now, as the exit says, and the lease later.
var releaseAfterQuery = freeingQuery("release after", func(name, tell string) string {
	if tell != "" { // nobody tells when the delay is over
		tell = ` || CASE WHEN expires_at <= clock_timestamp() THEN ''` + tell + ` ELSE '' END`
	}
	return `
UPDATE worklease_leases SET
  exit_mode = $5::text,
  expires_at = clock_timestamp() + $6::bigint * interval '1 microsecond',
  updated_at = clock_timestamp()
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
  AND expires_at > clock_timestamp()
RETURNING '` + name + `'` + tell
})

// checkpointReleaseQuery looks at no expiry, as checkpointQuery does not.
var checkpointReleaseQuery = freeingQuery("checkpoint and release", func(name, tell string) string {
	return `
UPDATE worklease_leases SET
  checkpoint = $6::bytea,
  exit_mode = $5::text,
  expires_at = clock_timestamp(),
  updated_at = clock_timestamp()
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint AND exit_mode IS NULL
RETURNING '` + name + `'` + tell
})

var readCheckpointQuery = query{"read checkpoint", `
SELECT ` + hexadecimal("read checkpoint") + `,
  l.work_id IS NOT NULL, l.checkpoint, l.prev_exit_mode, l.prev_holder_id
FROM (SELECT) AS always
LEFT JOIN worklease_leases AS l
  ON l.work_id = $2::text AND l.holder_id = $3::text AND l.fencing_token = $4::bigint
WHERE $1::text = 'read checkpoint'`}

// forgetQuery, like the others, fails on a table that is yet to be migrated. Otherwise it could delete the
// highest token before Migrate has seen it.
var forgetQuery = freeingQuery("forget", func(name, tell string) string {
	return `
DELETE FROM worklease_leases
WHERE $1::text = '` + name + `'
  AND work_id = $2::text AND holder_id = $3::text AND fencing_token = $4::bigint
  AND exit_mode IS DISTINCT FROM 'none' -- which it never is
RETURNING '` + name + `'` + tell
})

// sweepQuery deletes what is old among the next rows in the order of the primary key, and returns how
// many, and behind which row the next batch begins: NULL if there are no more rows, or if the row that
// $6 names is reached. Rows that are locked are left for another sweep; nobody waits.
var sweepQuery = freeingQuery("sweep", func(name, tell string) string {
	gone, n := "work_id", "*"
	if tell != "" { // of what a release was told of, it was told then
		gone, n = "work_id, exit_mode", "CASE WHEN exit_mode IS NULL THEN ''"+tell+" ELSE '' END"
	}
	return `
WITH page AS MATERIALIZED (
  -- Most rows of a large table are never swept. They are told here, and not looked up a second time.
  SELECT work_id, exit_mode = 'retired' OR (exit_mode IS NULL AND $5::boolean) AS mortal FROM worklease_leases
  WHERE $1::text = '` + name + `' AND work_id > $2::text
  ORDER BY work_id
  LIMIT $3::bigint
), old AS MATERIALIZED (
  SELECT work_id FROM worklease_leases
  WHERE work_id IN (SELECT work_id FROM page WHERE mortal)
    AND expires_at <= clock_timestamp()
    AND CASE
      WHEN exit_mode = 'retired' THEN updated_at
      WHEN exit_mode IS NULL AND $5::boolean THEN greatest(updated_at, expires_at)
    END < clock_timestamp() - $4::bigint * interval '1 microsecond'
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM worklease_leases WHERE work_id IN (SELECT work_id FROM old)
  RETURNING ` + gone + `
)
SELECT '` + name + `', (SELECT count(` + n + `) FROM gone), (
  SELECT CASE WHEN count(*) = $3::bigint AND ($6::text = '' OR max(work_id) < $6::text) THEN max(work_id) END FROM page)
WHERE $1::text = '` + name + `'`
})

// verdictQuery says of a record whether it matches, has declared no exit, and is not over, after a
// statement that returned nothing. It is a statement of its own because it needs a snapshot of its own:
// a takeover may have come while the first one waited.
var verdictQuery = query{"verdict", `
SELECT 'verdict', l.work_id IS NOT NULL, l.exit_mode IS NULL, l.expires_at > clock_timestamp()
FROM (SELECT) AS always
LEFT JOIN worklease_leases AS l
  ON l.work_id = $2::text AND l.holder_id = $3::text AND l.fencing_token = $4::bigint
WHERE $1::text = 'verdict'`}

// renewBatchQuery returns a letter for each lease: + renewed, . over on arrival, * locked but over, - not
// had; the last two are for batchVerdictQuery to explain. It waits for no row, so that it can be in no
// deadlock whatever the order of its rows: that is what the lock is for, since an update alone waits. It
// locks no row that another tenure has, and so no successor is kept from its own.
var renewBatchQuery = query{"renew batch", `
WITH asked AS MATERIALIZED (
  SELECT a.* FROM unnest($2::text::text[], $3::text::text[], $4::text::bigint[])
    WITH ORDINALITY AS a (work_id, holder_id, fencing_token, n)
  WHERE $1::text = 'renew batch'
), had AS MATERIALIZED (
  SELECT a.n, l.work_id FROM asked AS a JOIN worklease_leases AS l
    ON l.work_id = a.work_id AND l.holder_id = a.holder_id AND l.fencing_token = a.fencing_token AND l.exit_mode IS NULL
  FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
  UPDATE worklease_leases AS l SET expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
  FROM had WHERE l.work_id = had.work_id AND l.expires_at > clock_timestamp()
  RETURNING had.n, l.expires_at > clock_timestamp() AS live
)
SELECT 'renew batch', (
  SELECT string_agg(CASE WHEN renewed.live THEN '+' WHEN NOT renewed.live THEN '.' WHEN had.n IS NOT NULL THEN '*' ELSE '-' END, '' ORDER BY a.n)
  FROM asked AS a LEFT JOIN had ON had.n = a.n LEFT JOIN renewed ON renewed.n = a.n)
WHERE $1::text = 'renew batch'`}

// batchVerdictQuery is verdictQuery for many, as letters: f fenced, e an exit is declared, o over, h held.
var batchVerdictQuery = query{"batch verdict", `
SELECT 'batch verdict', (
  SELECT string_agg(CASE WHEN l.work_id IS NULL THEN 'f' WHEN l.exit_mode IS NOT NULL THEN 'e' WHEN l.expires_at > clock_timestamp() THEN 'h' ELSE 'o' END, '' ORDER BY a.n)
  FROM unnest($2::text::text[], $3::text::text[], $4::text::bigint[])
    WITH ORDINALITY AS a (work_id, holder_id, fencing_token, n)
  LEFT JOIN worklease_leases AS l
    ON l.work_id = a.work_id AND l.holder_id = a.holder_id AND l.fencing_token = a.fencing_token)
WHERE $1::text = 'batch verdict'`}

// freeQuery returns a letter for each work ID: f free, h held.
var freeQuery = query{"free", `
SELECT 'free', (
  SELECT string_agg(CASE WHEN l.work_id IS NULL THEN 'f' ELSE 'h' END, '' ORDER BY a.n)
  FROM unnest($2::text::text[]) WITH ORDINALITY AS a (work_id, n)
  LEFT JOIN worklease_leases AS l ON l.work_id = a.work_id AND l.expires_at > clock_timestamp())
WHERE $1::text = 'free'`}
