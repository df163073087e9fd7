-- Stores among several.

-- name: store_facts
-- What a store says of itself. `fresh`: nobody has used it yet. By indexes: what was
-- deleted may leave much of a table empty.
select (select number from this_store) as number,
       array(select slot from slots order by slot) as slots,
       not exists (select from slots where owner is not null or epoch > 0)
       and (select id from tasks order by id limit 1) is null
       and (select id from finished_tasks order by id limit 1) is null as fresh,
       exists (select from queues where max_in_flight is not null) as limits;

-- name: held_slots
select slot from slots;
