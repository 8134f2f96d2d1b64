-- Which database this is, so that a cursor of another one is told from a good one, and up to which position rows of
-- ended_sessions were dropped.
CREATE TABLE event_order (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    tag INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
);
INSERT INTO event_order VALUES (1, random() & 4294967295, 0);

-- The session.deleted of each deleted session: who was away has to learn that the session and its events are gone.
CREATE TABLE ended_sessions (
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    event INTEGER NOT NULL,
    owner TEXT NOT NULL,
    data BLOB NOT NULL
);
