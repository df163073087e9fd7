-- A success that is committed with its effect, in a user's own transaction: duly.complete.
--
-- The transaction's commit writes on the row of the attempt what became of it. From then on it cannot become anything
-- else: whatever a node records of this attempt, is this. So what follows (the run, the next occurrence, freed keys)
-- stays with the nodes, by the worker's usual report, or whatever else ends an attempt.

-- worker, finished_at and result of an attempt that runs and has completed.
alter table tasks add column completion jsonb;

-- What transactions that are open have to say when they commit; so nobody ever sees a row of another one.
create unlogged table completing (
    task_id    uuid not null,
    token      bigint not null,
    completion jsonb not null,
    primary key (task_id, token)
);

-- Why this attempt cannot complete (again).
create function duly_refuse_completion(id uuid, its_token bigint) returns void
language plpgsql as $$
#variable_conflict use_variable
declare
    done jsonb;
begin
    select t.completion into done from tasks t where t.id = id and t.version = its_token;
    if done is null then
        select jsonb_build_object('result', r.result) into done from runs r
        where r.task_id = id and r.token = its_token and r.outcome = 'completed' limit 1;
    end if;
    if done is not null then
        raise exception 'attempt % of task % has completed before', its_token, id
            using errcode = 'DU003', detail = coalesce((done -> 'result')::text, 'null');
    end if;
    raise exception 'token % of task % is stale', its_token, id using errcode = 'DU002';
end $$;

-- At the commit, so that until then nobody who records another end of the attempt has to wait.
create function duly_complete_at_commit() returns trigger
language plpgsql security definer as $$
begin
    update tasks t set completion = new.completion
    where t.id = new.task_id and t.version = new.token and t.completion is null
      and case when t.status = 'running' then true end;
    if not found then
        perform duly_refuse_completion(new.task_id, new.token);
    end if;
    delete from completing c where c.task_id = new.task_id and c.token = new.token;
    return null;
end $$;

create constraint trigger complete_at_commit after insert on completing
deferrable initially deferred for each row execute function duly_complete_at_commit();

-- See duly.complete.
create function duly_complete(id uuid, token bigint, result jsonb, worker text) returns void
language plpgsql as $$
#variable_conflict use_variable
begin
    result := coalesce(result, 'null');
    if octet_length(result::text) > 262144 then
        perform duly_wrong('result', 'is larger than 262144 bytes');
    elsif length(worker) > 200 then
        perform duly_wrong('worker', 'has more than 200 characters');
    elsif not exists (select from tasks t where t.id = id and t.version = token and t.completion is null
                      and case when t.status = 'running' then true end) then
        perform duly_refuse_completion(id, token);
    end if;
    insert into completing (task_id, token, completion)
    values (id, token, jsonb_build_object('worker', worker, 'finished_at', clock_timestamp(), 'result', result));
exception
    when unique_violation then
        raise exception 'task % is completed twice in one transaction', id using errcode = '23505';
end $$;

-- Complete the attempt of a task that has this token, within the caller's transaction: it has completed exactly if
-- that commits. Nobody who ends the attempt otherwise waits for it before the commit, which compares the token once
-- more.
-- SQLSTATE DU002, from here or from the commit: the token is stale. DU003: this attempt has completed before; the
-- detail of the error is its result. 22023: the result is too large.
create function duly.complete(id uuid, token bigint, result jsonb default 'null', worker text default null)
returns void
language plpgsql security definer as $$
begin
    perform duly_complete(id, token, result, worker);
end $$;
revoke execute on function duly.complete(uuid, bigint, jsonb, text) from public;

do $$ begin
    execute format('alter function duly.complete(uuid, bigint, jsonb, text) '
                   'set search_path = pg_catalog, %I, pg_temp', current_schema());
    execute format('alter function duly_complete_at_commit() '
                   'set search_path = pg_catalog, %I, pg_temp', current_schema());
end $$;
