-- The oldest shape: each row counts its own tokens.
CREATE TABLE worklease_leases (
    work_id       TEXT        PRIMARY KEY,
    holder_id     TEXT        NOT NULL,
    fencing_token BIGINT      NOT NULL DEFAULT 1,
    expires_at    TIMESTAMPTZ NOT NULL,
    checkpoint    BYTEA,
    acquired_at   TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
CREATE INDEX idx_worklease_leases_updated_at ON worklease_leases (updated_at);

INSERT INTO worklease_leases (work_id, holder_id, fencing_token, expires_at, checkpoint) VALUES
    ('live',     'old holder', 7, now() + interval '1 hour', 'at 7'),
    ('released', 'old holder', 3, now() - interval '1 hour', 'at 3'),
    ('lapsed',   'old holder', 1, now() - interval '1 hour', NULL);
