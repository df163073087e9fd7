-- What the nodes of one cluster share and nobody else may know; `session` signs the cookies of the admin page.

create table secrets (
    name  text collate "C" primary key,
    value text collate "C" not null
);
insert into secrets values ('session', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
