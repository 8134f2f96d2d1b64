-- A whole database of schema version 1, as a killed gander left it: a session with a turn that completed and one that
-- waits for an answer. Every later version has to open it.
BEGIN TRANSACTION;
CREATE TABLE answers (
    k INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    body_hash BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB
);
CREATE TABLE deletions (
    session INTEGER PRIMARY KEY
);
CREATE TABLE events (
    k INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    turn BLOB,
    data BLOB NOT NULL
);
INSERT INTO "events" VALUES(1099511627777,1,NULL,CAST('{"id":1,"type":"session.created","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.250Z","session":{"id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","owner":"default","title":"kept","metadata":{},"mode":"approve","by":"default"}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627778,4,NULL,CAST('{"id":2,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.250Z","state":"starting","reason":null}' AS BLOB));
INSERT INTO "events" VALUES(1099511627779,20,NULL,CAST('{"id":3,"type":"usage.updated","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.302Z","usage":{"context_used":0,"context_size":128000,"input_tokens":null,"output_tokens":null,"total_tokens":null,"cost":null}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627780,21,NULL,CAST('{"id":4,"type":"commands.updated","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.302Z","commands":[{"name":"compact","description":"Compact the conversation history"}]}' AS BLOB));
INSERT INTO "events" VALUES(1099511627781,2,NULL,CAST('{"id":5,"type":"session.updated","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.309Z","session":{"cwd":"/var/lib/gander/workspaces/01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","provider":"","model":"","extensions":[{"name":"todo","loaded":true,"error":null},{"name":"analyze","loaded":true,"error":null},{"name":"apps","loaded":true,"error":null},{"name":"developer","loaded":true,"error":null},{"name":"skills","loaded":true,"error":null},{"name":"tom","loaded":true,"error":null}],"config_options":[{"id":"provider","name":"Provider","category":null,"current_value":"","choices":[]},{"id":"mode","name":"Mode","category":"mode","current_value":"approve","choices":[{"value":"auto","name":"auto"},{"value":"approve","name":"approve"},{"value":"smart_approve","name":"smart_approve"},{"value":"chat","name":"chat"}]},{"id":"model","name":"Model","category":"model","current_value":"","choices":[{"value":"","name":""}]},{"id":"thinking_effort","name":"Thinking effort","category":"thought_level","current_value":"off","choices":[{"value":"off","name":"off"}]}],"agent":{"name":"goose","version":"1.52.0","transport":"stdio","mode":"approve","pid":27889,"generation":1}}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627782,4,NULL,CAST('{"id":6,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.309Z","state":"idle","reason":null}' AS BLOB));
INSERT INTO "events" VALUES(1099511627783,5,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":7,"type":"turn.started","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.545Z","turn":{"id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"running","prompt":"echo hello\ncall","text":null,"stop_reason":null,"error":null,"usage":null,"created_at":"2026-11-30T17:02:58.545Z","started_at":"2026-11-30T17:02:58.545Z","ended_at":null,"first_event_id":7,"last_event_id":null},"by":"default"}' AS BLOB));
INSERT INTO "events" VALUES(1099511627784,4,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":8,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.545Z","state":"running","reason":null}' AS BLOB));
INSERT INTO "events" VALUES(1099511627785,10,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":9,"type":"message.delta","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.549Z","message_id":"01a22d68-e3f5-75ca-adca-94f52c877ba5","text":"hello"}' AS BLOB));
INSERT INTO "events" VALUES(1099511627786,13,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":10,"type":"tool_call.started","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.549Z","tool_call":{"id":"call_3","tool":"shell","extension":"developer","title":"shell · ls","status":"pending","input":{"command":"ls"}}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627787,16,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":11,"type":"tool_call.finished","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.549Z","tool_call":{"id":"call_3","tool":"shell","extension":"developer","title":"shell · ls","status":"completed","content":[{"type":"content","content":{"type":"text","text":"f.txt"}}],"output":{"stdout":"f.txt","stderr":"","exit_code":0}}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627788,20,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":12,"type":"usage.updated","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.549Z","usage":{"context_used":16,"context_size":128000,"input_tokens":null,"output_tokens":null,"total_tokens":null,"cost":null}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627789,6,X'01A22D68E3F171FE833863A77D417BD9',CAST('{"id":13,"type":"turn.completed","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","time":"2026-11-30T17:02:58.549Z","turn":{"id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"completed","text":"hello","stop_reason":"end_turn","error":null,"usage":null,"created_at":"2026-11-30T17:02:58.545Z","started_at":"2026-11-30T17:02:58.545Z","ended_at":"2026-11-30T17:02:58.549Z","first_event_id":7,"last_event_id":13}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627790,4,NULL,CAST('{"id":14,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":null,"time":"2026-11-30T17:02:58.549Z","state":"idle","reason":null}' AS BLOB));
INSERT INTO "events" VALUES(1099511627791,5,X'01A22D68E407766584012181D1B5627B',CAST('{"id":15,"type":"turn.started","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","time":"2026-11-30T17:02:58.567Z","turn":{"id":"01a22d68-e407-7665-8401-2181d1b5627b","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"running","prompt":"ask","text":null,"stop_reason":null,"error":null,"usage":null,"created_at":"2026-11-30T17:02:58.567Z","started_at":"2026-11-30T17:02:58.567Z","ended_at":null,"first_event_id":15,"last_event_id":null},"by":"default"}' AS BLOB));
INSERT INTO "events" VALUES(1099511627792,4,X'01A22D68E407766584012181D1B5627B',CAST('{"id":16,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","time":"2026-11-30T17:02:58.567Z","state":"running","reason":null}' AS BLOB));
INSERT INTO "events" VALUES(1099511627793,13,X'01A22D68E407766584012181D1B5627B',CAST('{"id":17,"type":"tool_call.started","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","time":"2026-11-30T17:02:58.574Z","tool_call":{"id":"call_5","tool":"shell","extension":"developer","title":"shell · ls","status":"pending","input":{"command":"ls"}}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627794,18,X'01A22D68E407766584012181D1B5627B',CAST('{"id":18,"type":"permission.requested","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","time":"2026-11-30T17:02:58.574Z","permission":{"id":"01a22d68-e40e-73ce-8b2c-b67dce665db9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","kind":"tool","state":"pending","tool_call":{"id":"call_5","tool":"shell","extension":"developer","title":"shell · ls","kind":"other","input":{"command":"ls"},"cwd":"/var/lib/gander/workspaces/01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2"},"options":[{"id":"allow_once","name":"Allow","kind":"allow_once"},{"id":"reject_once","name":"Reject","kind":"reject_once"}],"requested_at":"2026-11-30T17:02:58.574Z","expires_at":"2026-11-30T17:12:58.574Z","outcome":null}}' AS BLOB));
INSERT INTO "events" VALUES(1099511627795,4,X'01A22D68E407766584012181D1B5627B',CAST('{"id":19,"type":"session.state","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","time":"2026-11-30T17:02:58.574Z","state":"awaiting_permission","reason":null}' AS BLOB));
CREATE TABLE next_position (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    position INTEGER NOT NULL
);
INSERT INTO "next_position" VALUES(1,1);
CREATE TABLE permissions (
    k INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id BLOB NOT NULL UNIQUE,
    state TEXT NOT NULL,
    record TEXT NOT NULL
);
INSERT INTO "permissions" VALUES(1,1,X'01A22D68E40E73CE8B2CB67DCE665DB9','pending','{"id":"01a22d68-e40e-73ce-8b2c-b67dce665db9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","kind":"tool","state":"pending","tool_call":{"id":"call_5","tool":"shell","extension":"developer","title":"shell · ls","kind":"other","input":{"command":"ls"},"cwd":"/var/lib/gander/workspaces/01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2"},"options":[{"id":"allow_once","name":"Allow","kind":"allow_once"},{"id":"reject_once","name":"Reject","kind":"reject_once"}],"requested_at":"2026-11-30T17:02:58.574Z","expires_at":"2026-11-30T17:12:58.574Z","outcome":null}');
CREATE TABLE runs (
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL
);
INSERT INTO "runs" VALUES(1,1,1,2);
INSERT INTO "runs" VALUES(3,1,3,4);
INSERT INTO "runs" VALUES(7,1,7,2);
INSERT INTO "runs" VALUES(9,1,9,6);
INSERT INTO "runs" VALUES(15,1,15,2);
INSERT INTO "runs" VALUES(17,1,17,3);
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT CHECK (number < 1 << 23),
    id BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    record TEXT NOT NULL
);
INSERT INTO "sessions" VALUES(1,X'01A22D68E2C976F68F883C5E5EB00EA2','default','awaiting_permission','{"snapshot":{"id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","owner":"default","state":"awaiting_permission","state_reason":null,"cwd":"/var/lib/gander/workspaces/01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","title":"kept","metadata":{},"mode":"approve","provider":"","model":"","created_at":"2026-11-30T17:02:58.249Z","updated_at":"2026-11-30T17:02:58.574Z","last_event_id":19,"current_turn":{"id":"01a22d68-e407-7665-8401-2181d1b5627b","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"running","text":null,"stop_reason":null,"error":null,"usage":null,"created_at":"2026-11-30T17:02:58.567Z","started_at":"2026-11-30T17:02:58.567Z","ended_at":null,"first_event_id":15,"last_event_id":null},"plan":{"version":0,"entries":[]},"pending_permissions":[{"id":"01a22d68-e40e-73ce-8b2c-b67dce665db9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","turn_id":"01a22d68-e407-7665-8401-2181d1b5627b","kind":"tool","state":"pending","tool_call":{"id":"call_5","tool":"shell","extension":"developer","title":"shell · ls","kind":"other","input":{"command":"ls"},"cwd":"/var/lib/gander/workspaces/01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2"},"options":[{"id":"allow_once","name":"Allow","kind":"allow_once"},{"id":"reject_once","name":"Reject","kind":"reject_once"}],"requested_at":"2026-11-30T17:02:58.574Z","expires_at":"2026-11-30T17:12:58.574Z","outcome":null}],"open_tool_calls":[{"id":"call_5","tool":"shell","extension":"developer","title":"shell · ls","status":"pending","input":{"command":"ls"}}],"usage":{"context_used":16,"context_size":128000,"input_tokens":null,"output_tokens":null,"total_tokens":null,"cost":null},"extensions":[{"name":"todo","loaded":true,"error":null},{"name":"analyze","loaded":true,"error":null},{"name":"apps","loaded":true,"error":null},{"name":"developer","loaded":true,"error":null},{"name":"skills","loaded":true,"error":null},{"name":"tom","loaded":true,"error":null}],"notices":[],"commands":[{"name":"compact","description":"Compact the conversation history"}],"config_options":[{"id":"provider","name":"Provider","category":null,"current_value":"","choices":[]},{"id":"mode","name":"Mode","category":"mode","current_value":"approve","choices":[{"value":"auto","name":"auto"},{"value":"approve","name":"approve"},{"value":"smart_approve","name":"smart_approve"},{"value":"chat","name":"chat"}]},{"id":"model","name":"Model","category":"model","current_value":"","choices":[{"value":"","name":""}]},{"id":"thinking_effort","name":"Thinking effort","category":"thought_level","current_value":"off","choices":[{"value":"off","name":"off"}]}],"agent":{"name":"goose","version":"1.52.0","transport":"stdio","mode":"approve","pid":27889,"generation":1}},"title_is_callers":true,"deleting":false,"launch":{"cwd":null,"mode":"approve","provider":null,"model":null,"builtins":null,"disabled_extensions":[],"env":{}}}');
CREATE TABLE turns (
    k INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, id)
);
INSERT INTO "turns" VALUES(1,1,X'01A22D68E3F171FE833863A77D417BD9','{"id":"01a22d68-e3f1-71fe-8338-63a77d417bd9","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"completed","prompt":"echo hello\ncall","text":"hello","stop_reason":"end_turn","error":null,"usage":null,"created_at":"2026-11-30T17:02:58.545Z","started_at":"2026-11-30T17:02:58.545Z","ended_at":"2026-11-30T17:02:58.549Z","first_event_id":7,"last_event_id":13}');
INSERT INTO "turns" VALUES(2,1,X'01A22D68E407766584012181D1B5627B','{"id":"01a22d68-e407-7665-8401-2181d1b5627b","session_id":"01a22d68-e2c9-76f6-8f88-3c5e5eb00ea2","state":"running","prompt":"ask","text":null,"stop_reason":null,"error":null,"usage":null,"created_at":"2026-11-30T17:02:58.567Z","started_at":"2026-11-30T17:02:58.567Z","ended_at":null,"first_event_id":15,"last_event_id":null}');
CREATE INDEX sessions_of_owner ON sessions (owner, id);
CREATE INDEX runs_of_session ON runs (session, first);
CREATE INDEX permissions_of_session ON permissions (session, id);
CREATE INDEX permissions_in_state ON permissions (state, id);
CREATE INDEX answers_by_age ON answers (created_ms);
PRAGMA application_id = 0x676e6472;
PRAGMA user_version = 1;
COMMIT;
