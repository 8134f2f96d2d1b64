-- A session's number is never given twice, also when the session with the highest one was deleted.
-- It has to fit beside 40 bits of event id.
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT CHECK (number < 1 << 23),
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX sessions_of_owner ON sessions (owner, id);

-- k = session's number << 40 | event's id, so that one session's events lie together, in order, without an index.
CREATE TABLE events (
    k INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    turn BLOB,
    data BLOB NOT NULL
);

-- The global position of every event, at a row per run: that of an event is position + (its id - first).
CREATE TABLE runs (
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL
);
CREATE INDEX runs_of_session ON runs (session, first);

-- One row: no position below it is free, also when the runs that had them are deleted.
CREATE TABLE next_position (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    position INTEGER NOT NULL
);
INSERT INTO next_position VALUES (1, 1);

CREATE TABLE turns (
    k INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, id)
);

CREATE TABLE permissions (
    k INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id BLOB NOT NULL UNIQUE,
    state TEXT NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX permissions_of_session ON permissions (session, id);
CREATE INDEX permissions_in_state ON permissions (state, id);

-- Sessions whose row is gone and whose other rows are being removed.
CREATE TABLE deletions (
    session INTEGER PRIMARY KEY
);

-- Answers to requests with an idempotency key; without a status while the request runs.
CREATE TABLE answers (
    k INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    body_hash BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB
);
CREATE INDEX answers_by_age ON answers (created_ms);
