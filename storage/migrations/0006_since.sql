-- Since when something stands still, for whoever asks why.

alter table tasks
    -- Who paused it (the name of a token; null on a node without tokens), and when.
    add column paused_by text collate "C",
    add column paused_at timestamptz;

alter table slots
    -- When its last owner let it go; null while it has one, even one that is gone.
    add column free_since timestamptz;
