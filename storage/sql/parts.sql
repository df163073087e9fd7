-- What statements of several files have in common.

-- part: asked_for
-- What was submitted, or changed since: it goes along between `tasks` and `finished_tasks`.
type, queue, payload, max_retries, interval, created_at, backoff, timeout, schedule, overrun,
misfire_grace, on_lost, priority, idempotency_key, tags, concurrency_key, concurrency_limit,
fairness_key, region, name;

-- part: task t
-- A row of `tasks`, as it is answered.
{columns t its_payload its_next_run_at no_time no_json};

-- part: finished_task t
{columns t its_payload no_time its_finished_at its_result};

-- part: columns t payload next_run_at finished_at result
{t}.id, {t}.type, {t}.queue, {payload t} as payload, {t}.status, {t}.paused,
{next_run_at t} as next_run_at, {t}.occurrence, {t}.slot, {t}.owner, {t}.version, {t}.retry_count,
{t}.max_retries, {t}.backoff, {t}.timeout, {t}.schedule, {t}.overrun, {t}.misfire_grace, {t}.on_lost,
{t}.priority, {t}.idempotency_key, {t}.tags, {t}.concurrency_key, {t}.concurrency_limit,
{t}.fairness_key, {t}.region, {t}.name, {t}.created_at, {t}.updated_at, {t}.started_at, {finished_at t} as finished_at,
{t}.worker, {result t} as result, {t}.error;

-- part: its_payload t
{t}.payload;

-- part: its_next_run_at t
{t}.next_run_at;

-- part: its_finished_at t
{t}.finished_at;

-- part: its_result t
{t}.result;

-- part: no_time t
null::timestamptz;

-- part: no_json t
null::jsonb;
