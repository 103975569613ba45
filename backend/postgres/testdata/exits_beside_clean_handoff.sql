-- The exits of today, but the flag is still there, and a row from before them.
CREATE SEQUENCE worklease_fencing_seq;
CREATE TABLE worklease_leases (
    work_id        TEXT        PRIMARY KEY,
    holder_id      TEXT        NOT NULL,
    fencing_token  BIGINT      NOT NULL DEFAULT nextval('worklease_fencing_seq'),
    expires_at     TIMESTAMPTZ NOT NULL,
    checkpoint     BYTEA,
    clean_handoff  BOOLEAN     NOT NULL DEFAULT false,
    exit_mode      TEXT CHECK (exit_mode IN ('finished', 'abandoned', 'retired')),
    prev_exit_mode TEXT        NOT NULL DEFAULT 'none',
    prev_holder_id TEXT,
    acquired_at    TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at     TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX idx_worklease_leases_updated_at ON worklease_leases (updated_at);

INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at, checkpoint, clean_handoff, exit_mode, prev_exit_mode, prev_holder_id) VALUES
    ('live',     'old holder', 700, now() + interval '1 hour', 'at 700', false, NULL,       'retired', 'older holder'),
    ('finished', 'old holder', 500, now() - interval '1 hour', 'at 500', true,  'finished', 'none',    NULL),
    ('released', 'old holder', 300, now() - interval '1 hour', 'at 300', true,  NULL,       'none',    NULL),
    ('lapsed',   'old holder', 100, now() - interval '1 hour', NULL,     false, NULL,       'expired', 'older holder');
SELECT setval('worklease_fencing_seq', 1000);
