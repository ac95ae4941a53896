-- Who has claimed what goes out, as JSON: a process that is certainly dead keeps nothing from those that live.

ALTER TABLE deliveries ADD COLUMN claimant TEXT;

ALTER TABLE cursors ADD COLUMN claimant TEXT;

CREATE INDEX deliveries_claimed ON deliveries (claimant) WHERE claimant IS NOT NULL;

CREATE INDEX cursors_claimed ON cursors (claimant) WHERE claimant IS NOT NULL;
