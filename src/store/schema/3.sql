-- One row, about the last run that was begun: the kernel's boot it ran in, and whether a loss of power could take back
-- what it has told subscribers.
CREATE TABLE last_run (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    boot TEXT NOT NULL,
    at_risk INTEGER NOT NULL
);
INSERT INTO last_run VALUES (1, '', 0);

-- Event ids that may have been told and were lost with the power: those between kept and next.
CREATE TABLE lost (
    session INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (session, kept)
) WITHOUT ROWID;
