-- One sequence, and a flag for leases that were given up rather than lost. The sequence is of the kind
-- that makes trouble: of a small type, cached, and behind.
CREATE SEQUENCE worklease_fencing_seq AS INTEGER CACHE 20;
CREATE TABLE worklease_leases (
    work_id       TEXT        PRIMARY KEY,
    holder_id     TEXT        NOT NULL,
    fencing_token BIGINT      NOT NULL DEFAULT nextval('worklease_fencing_seq'),
    expires_at    TIMESTAMPTZ NOT NULL,
    checkpoint    BYTEA,
    clean_handoff BOOLEAN     NOT NULL DEFAULT false,
    acquired_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX idx_worklease_leases_updated_at ON worklease_leases (updated_at);

INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at, checkpoint, clean_handoff) VALUES
    ('live',     'old holder', 70, now() + interval '1 hour', 'at 70', false),
    ('released', 'old holder', 30, now() - interval '1 hour', 'at 30', true),
    ('lapsed',   'old holder', 10, now() - interval '1 hour', NULL,    false);
