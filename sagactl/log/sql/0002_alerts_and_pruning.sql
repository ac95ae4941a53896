-- Alerts with all that was sent of them, and what remains of runs that were deleted. `past_alerts` fills the outbox with
-- what the records of older runs say. The table it replaces was never written.

DROP TABLE outbox;

-- Alerts: a row if and only if its record exists. `opened_seq` is the record that raised what this one says is over.
CREATE TABLE outbox (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  reason TEXT NOT NULL,
  step TEXT NOT NULL,
  opened_seq INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  is_open INTEGER NOT NULL,
  finished_at_ms INTEGER,
  UNIQUE (run_id, seq, reason, step)
);

CREATE UNIQUE INDEX outbox_open ON outbox (run_id, reason, step) WHERE is_open = 1;

CREATE INDEX outbox_pending ON outbox (number) WHERE finished_at_ms IS NULL;

-- How far each message has come at each channel that was ever tried.
CREATE TABLE deliveries (
  number INTEGER NOT NULL REFERENCES outbox (number) ON DELETE CASCADE,
  channel TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  due_ms INTEGER NOT NULL,
  delivered_at_ms INTEGER,
  error TEXT,
  PRIMARY KEY (number, channel)
) WITHOUT ROWID;

-- How far each target has seen the records of each run: they are durable and in order, so a number is all it takes.
CREATE TABLE cursors (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
  target TEXT NOT NULL,
  seq INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  due_ms INTEGER NOT NULL,
  error TEXT,
  PRIMARY KEY (run_id, target)
) WITHOUT ROWID;

CREATE INDEX cursors_unfinished ON cursors (target, due_ms) WHERE due_ms > 0;

-- What remains of runs that were deleted, in a chain of its own; the last number and hash stand in meta as well.
CREATE TABLE tombstones (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  saga TEXT NOT NULL,
  status TEXT NOT NULL,
  key_digest TEXT,
  input_digest TEXT NOT NULL,
  seq INTEGER NOT NULL,
  head TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  ended_at_ms INTEGER NOT NULL,
  pruned_at_ms INTEGER NOT NULL,
  pruned_by TEXT NOT NULL,
  hash TEXT NOT NULL
);

CREATE UNIQUE INDEX tombstones_key ON tombstones (key_digest) WHERE key_digest IS NOT NULL;
