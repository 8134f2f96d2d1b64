-- Which session an answer tells of, so that what it says goes with the session. That of earlier answers is not known:
-- they go when they are a day old.
ALTER TABLE answers ADD COLUMN session INTEGER;
CREATE INDEX answers_of_session ON answers (session) WHERE session IS NOT NULL;
