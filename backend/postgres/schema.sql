-- The objects that worklease keeps its leases in. Every statement may be run again.

-- Gaps in the tokens mean nothing, order does: a sequence that hands out values to sessions in
-- advance would give a later holder a smaller one.
CREATE SEQUENCE IF NOT EXISTS worklease_fencing_seq AS BIGINT CACHE 1;

-- There is no index beside the primary key, and none is wanted: without one on a column that changes,
-- every operation is a HOT update, which leaves the primary key alone and is cleaned up at the next
-- visit to the page. fillfactor leaves room for that on the page. toast_tuple_target moves
-- states above 2 KB out of the row, all but a stub, so that renewing it does not write them again.
CREATE TABLE IF NOT EXISTS worklease_leases (
    work_id        TEXT        PRIMARY KEY,
    holder_id      TEXT        NOT NULL,
    fencing_token  BIGINT      NOT NULL DEFAULT nextval('worklease_fencing_seq'),
    expires_at     TIMESTAMPTZ NOT NULL,
    checkpoint     BYTEA,
    exit_mode      TEXT
        CONSTRAINT worklease_leases_exit_mode_check
        CHECK (exit_mode IN ('finished', 'abandoned', 'retired')),
    prev_exit_mode TEXT        NOT NULL DEFAULT 'none'
        CONSTRAINT worklease_leases_prev_exit_mode_check
        CHECK (prev_exit_mode IN ('none', 'expired', 'finished', 'abandoned', 'retired')),
    prev_holder_id TEXT,
    acquired_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at     TIMESTAMPTZ NOT NULL DEFAULT NOW()
) WITH (
    fillfactor = 70,
    toast_tuple_target = 256,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
