-- What reads ahead reads the index alone only where a vacuum has seen the rows. Where many tasks come and few have
-- ended yet, their number has to start one: by default that takes a fifth of the table, millions of a large one.

alter table tasks set (autovacuum_vacuum_insert_scale_factor = 0.01);
