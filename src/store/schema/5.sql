-- Who did what, and when. Kept when the session is deleted, whose number means nothing then: hence its id.
CREATE TABLE audit (
    k INTEGER PRIMARY KEY,
    -- Milliseconds since 1970.
    at_ms INTEGER NOT NULL,
    -- `caller:<name>`, or what decided by itself.
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    session BLOB,
    request TEXT,
    -- JSON: what else there is to say, never words of prompts or of the agent.
    details TEXT NOT NULL
);
CREATE INDEX audit_by_time ON audit (at_ms);
CREATE INDEX audit_of_session ON audit (session) WHERE session IS NOT NULL;
