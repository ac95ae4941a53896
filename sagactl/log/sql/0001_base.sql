-- The log as the first release made it. A migration is never changed once it is released: a new one follows it.

CREATE TABLE meta (
  name TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- Snapshots of sagas, once each, by the digest of their canonical JSON.
CREATE TABLE definitions (
  digest TEXT NOT NULL PRIMARY KEY,
  body TEXT NOT NULL
);

-- One row a run, written in the transaction of the records that it sums up.
CREATE TABLE runs (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  saga TEXT NOT NULL,
  definition TEXT NOT NULL REFERENCES definitions (digest),
  status TEXT NOT NULL,
  direction TEXT NOT NULL,
  cause TEXT,
  failure TEXT,
  failed_step TEXT,
  waiting_for TEXT,
  waiting_until_ms INTEGER,
  key TEXT,
  key_is_explicit INTEGER NOT NULL,
  input_digest TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  ended_at_ms INTEGER,
  steps_total INTEGER NOT NULL,
  steps_done INTEGER NOT NULL,
  dead_letters INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  head TEXT NOT NULL
);

-- A key that the saga's run_key made is free again when its run was rolled back; an explicit one never.
CREATE UNIQUE INDEX runs_key ON runs (saga, key)
  WHERE key IS NOT NULL AND (key_is_explicit = 1 OR status <> 'rolled_back');

-- All that lists filter by, so that they count without touching the table.
CREATE INDEX runs_listed ON runs (status, saga, created_at_ms);

-- Records in the order in which they came; with bodies of this size a table with row ids keeps its tree flat.
CREATE TABLE records (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  type TEXT NOT NULL,
  step TEXT,
  item INTEGER,
  attempt INTEGER,
  body TEXT NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
);

-- Who drives a run. Without a host nobody does; the fence stays and only grows.
CREATE TABLE leases (
  run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE,
  fence INTEGER NOT NULL,
  host TEXT,
  pid INTEGER,
  started TEXT,
  boot_id TEXT,
  granted_boot_id TEXT,
  granted_boot_ms INTEGER,
  granted_wall_ms INTEGER
) WITHOUT ROWID;

-- What operators asked for; answered when a record says what became of it.
CREATE TABLE requests (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  id TEXT NOT NULL,
  asked_at_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  is_answered INTEGER NOT NULL DEFAULT 0,
  UNIQUE (run_id, id)
);

CREATE INDEX requests_open ON requests (number) WHERE is_answered = 0;

-- Operations that wait for a person; a row if and only if its record exists.
CREATE TABLE dead_letters (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  step TEXT NOT NULL,
  item INTEGER,
  direction TEXT NOT NULL,
  reason TEXT NOT NULL,
  failure TEXT,
  opened_at_ms INTEGER NOT NULL,
  closed_at_ms INTEGER,
  UNIQUE (run_id, seq)
);

CREATE UNIQUE INDEX dead_letters_open ON dead_letters (run_id, step, ifnull(item, -1), direction)
  WHERE closed_at_ms IS NULL;

-- Messages to the outside, written with the record that causes them, delivered at least once under their id.
CREATE TABLE outbox (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  due_ms INTEGER NOT NULL,
  delivered_at_ms INTEGER
);

CREATE INDEX outbox_due ON outbox (due_ms) WHERE delivered_at_ms IS NULL;

-- What calls printed, up to a limit for each run; total_bytes counts it.
CREATE TABLE captured (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  step TEXT NOT NULL,
  item INTEGER,
  direction TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  text TEXT NOT NULL,
  total_bytes INTEGER NOT NULL
);

CREATE INDEX captured_by_run ON captured (run_id, number);
