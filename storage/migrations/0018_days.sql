-- Days of the tables that are kept by day: made and dropped one at a time, with locks that wait for a
-- tenth of a second at most, since whoever writes to the table waits behind them. (The functions that do it
-- by many days stay for nodes of the version before.) And which days have been exported.

-- What an archive is one of.
create table archive_source (id uuid primary key);
insert into archive_source values (gen_random_uuid());

-- Days that exports have looked at; a row goes with its day.
create table archived_days (
    parent      text collate "C" not null,
    day         date not null,
    -- Another one if the day was dropped, and then rows of it came after all.
    life        uuid not null default gen_random_uuid(),
    -- Another one whenever rows were added to the day: what was exported before is then not all of it.
    state       uuid not null default gen_random_uuid(),
    -- Null: not exported, or not all of it.
    exported_at timestamptz,
    rows        bigint,
    sha256      text,
    -- Its rows, in the default partition, are being deleted.
    dropping    boolean not null default false,
    primary key (parent, day)
);

create function duly_day_name(parent text, day date) returns text language sql stable as $$
    select parent || '_' || to_char(day, 'YYYYMMDD')
$$;

create function duly_day_begins(day date) returns timestamptz language sql immutable as $$
    select day::timestamp at time zone 'UTC'
$$;

-- The condition that a row is of this day.
create function duly_within(clock_column text, day date) returns text language sql stable as $$
    select format('%I >= %L and %I < %L', clock_column, duly_day_begins(day), clock_column, duly_day_begins(day + 1))
$$;

-- The days of `parent`: those that have a partition, and those of which there are rows in the default one (`stray`).
create function duly_days(parent text, clock_column text) returns table (day date, stray boolean)
language plpgsql stable as $$
begin
    return query
        select to_date(right(c.relname, 8), 'YYYYMMDD'), false
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = to_regclass(parent) and c.relname ~ ('^' || parent || '_[0-9]{8}$');
    return query execute format('select distinct (r.%I at time zone ''UTC'')::date, true from %I r',
                                clock_column, parent || '_rest');
end $$;

-- Make the partition of a day (UTC); rows of it that had to go to the default one move there, unless they are
-- more than `most`: then they stay. Answers whether the partition is there.
create function duly_make_day(parent text, clock_column text, day date, most integer) returns boolean
language plpgsql
set lock_timeout = '100ms'
as $$
declare
    name text := duly_day_name(parent, day);
    within text := duly_within(clock_column, day);
    strays bigint;
begin
    perform pg_advisory_xact_lock(hashtext('duly_make_partitions'));
    if to_regclass(name) is not null then
        return true;
    end if;
    execute format('select count(*) from (select from %I where %s limit %s) s', parent || '_rest', within, most + 1)
    into strays;
    if strays > most then
        return false;
    end if;
    execute format('create table %I (like %I including all)', name, parent);
    -- No row may be on its way into the default partition: it would be refused there later.
    execute format('lock table only %I in share row exclusive mode', parent);
    execute format('with moved as (delete from %I where %s returning *) insert into %I select * from moved',
                   parent || '_rest', within, name);
    execute format('alter table %I attach partition %I for values from (%L) to (%L)',
                   parent, name, duly_day_begins(day), duly_day_begins(day + 1));
    -- An export of the day has watched the default partition.
    update archived_days a set state = gen_random_uuid(), exported_at = null
    where a.parent = duly_make_day.parent and a.day = duly_make_day.day;
    if found then
        perform duly_note_rows(name, parent, clock_column);
    end if;
    return true;
exception
    when lock_not_available then
        return false;
    when duplicate_table then  -- another node was quicker, and the name was looked up too early
        return true;
end $$;

-- Drop the partition of a day, unless `exported` is asked for and it is not: `dropped`, `unexported`, or `locked`
-- if somebody uses it, or the table, right now.
create function duly_drop_day(parent text, day date, exported boolean) returns text
language plpgsql
set lock_timeout = '100ms'
as $$
begin
    -- First that of the day alone: as long as somebody reads it, nobody else has to wait.
    execute format('lock table only %I in access exclusive mode nowait', duly_day_name(parent, day));
    if exported and not exists (
        select from archived_days a
        where a.parent = duly_drop_day.parent and a.day = duly_drop_day.day and a.exported_at is not null
    ) then
        return 'unexported';
    end if;
    execute format('drop table %I', duly_day_name(parent, day));
    delete from archived_days a where a.parent = duly_drop_day.parent and a.day = duly_drop_day.day;
    return 'dropped';
exception
    when lock_not_available then
        return 'locked';
    when undefined_table then
        return 'dropped';
end $$;

-- Delete some thousands of the rows of a day in the default partition, unless `exported` is asked for and it is
-- not; answers how many, -1 then.
create function duly_drop_strays(parent text, clock_column text, day date, exported boolean) returns bigint
language plpgsql as $$
declare
    deleted bigint;
begin
    update archived_days a set dropping = true
    where a.parent = duly_drop_strays.parent and a.day = duly_drop_strays.day
      and (a.exported_at is not null or not exported);
    if exported and not found then
        return -1;
    end if;
    execute format(
        'delete from %I where ctid in (select ctid from %I where %s limit 5000 for update skip locked)',
        parent || '_rest', parent || '_rest', duly_within(clock_column, day));
    get diagnostics deleted = row_count;
    if deleted = 0 then
        delete from archived_days a where a.parent = duly_drop_strays.parent and a.day = duly_drop_strays.day;
    end if;
    return deleted;
end $$;

-- From now on note every row that is added to a day. Those that are being added are waited for, but not for long:
-- then `what` is `locked`. It is `gone` if there is no such day (any more), else `watched`; `place` is where
-- its rows are.
create function duly_watch_day(
    parent text, clock_column text, day date, out what text, out place text, out life uuid, out state uuid
) language plpgsql
set lock_timeout = '100ms'
as $$
declare
    strays boolean;
begin
    place := duly_day_name(parent, day);
    if to_regclass(place) is null then
        place := parent || '_rest';
        execute format('select exists (select from %I where %s)', place, duly_within(clock_column, day)) into strays;
        if not strays then
            what := 'gone';
            return;
        end if;
    end if;
    perform duly_note_rows(place, parent, clock_column);
    insert into archived_days (parent, day) values (duly_watch_day.parent, duly_watch_day.day) on conflict do nothing;
    select case when a.dropping then 'gone' else 'watched' end, a.life, a.state into what, life, state
    from archived_days a where a.parent = duly_watch_day.parent and a.day = duly_watch_day.day;
exception
    when lock_not_available then
        what := 'locked';
    when undefined_table then
        what := 'gone';
end $$;

-- Note the rows that are added to a partition.
create function duly_note_rows(place text, parent text, clock_column text) returns void language plpgsql as $$
begin
    if not exists (select from pg_trigger t where t.tgrelid = place::regclass and t.tgname = 'duly_day_grew') then
        execute format('create trigger duly_day_grew after insert on %I for each row '
                       'execute function duly_day_grew(%L, %L)', place, parent, clock_column);
    end if;
end $$;

create function duly_day_grew() returns trigger language plpgsql as $$
begin
    update archived_days a
    set state = gen_random_uuid(), exported_at = null, dropping = false,
        life = case when a.dropping then gen_random_uuid() else a.life end
    where a.parent = tg_argv[0]
      and a.day = ((to_jsonb(new) ->> tg_argv[1])::timestamptz at time zone 'UTC')::date;
    return null;
end $$;
