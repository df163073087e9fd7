-- Of many rows that one transaction adds to a day that was exported, the first one alone changes the state.

alter table archived_days add column changed_in xid8;

create or replace function duly_day_grew() returns trigger language plpgsql as $$
begin
    update archived_days a
    set state = gen_random_uuid(), exported_at = null, dropping = false, changed_in = pg_current_xact_id(),
        life = case when a.dropping then gen_random_uuid() else a.life end
    where a.parent = tg_argv[0]
      and a.day = ((to_jsonb(new) ->> tg_argv[1])::timestamptz at time zone 'UTC')::date
      and a.changed_in is distinct from pg_current_xact_id();
    return null;
end $$;
