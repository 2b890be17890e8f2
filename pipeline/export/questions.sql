-- Questions about an export, for the views of views.sql. testdata/answers.json has the answers that a test expects.

-- query: cost by model and week
select date_trunc('week', day)::date as week, model, sum(total) as tokens, round(sum(usd), 4) as usd,
  round(sum(vendor_usd), 4) as vendor_usd
from calls group by all order by week, tokens desc, model;

-- query: most expensive sessions
select source, session_id, min(day) as day, sum(total) as tokens, round(sum(usd), 4) as usd
from calls group by all order by usd desc nulls last, session_id limit 20;

-- query: tokens by repository
-- Null for sessions whose agent states none.
select repository, count(distinct (source, session_id)) as sessions, sum(total) as tokens, round(sum(usd), 4) as usd
from calls group by all order by tokens desc, repository;

-- query: branches
select repository, branch, sum(total) as tokens, round(sum(usd), 4) as usd
from calls group by all order by tokens desc, repository, branch;

-- query: pull requests
select pull_request, sum(total) as tokens, round(sum(usd), 4) as usd
from calls group by all order by tokens desc, pull_request;

-- query: user and machine
select team, user_name, host, sum(total) as tokens, round(sum(usd), 4) as usd
from calls group by all order by tokens desc, team, user_name, host;

-- query: cache hit rate
select source, date_trunc('week', day)::date as week,
  round(sum(cache_read) / nullif(sum(input + cache_read + cache_write), 0), 3) as hit_rate
from calls group by all order by week, source;

-- query: tools that fail most
-- The latencies are those that vendors state.
select tool, count(*) as calls, count(*) filter (outcome = 'error') as failures, round(failures / calls, 3) as rate,
  quantile_disc(latency_ms, 0.5) as p50_ms, quantile_disc(latency_ms, 0.95) as p95_ms
from tool_calls group by tool order by failures desc, calls desc, tool;

-- query: longest sessions
-- Without pauses of more than five minutes.
with gaps as ( -- a time that goes back adds nothing, nor does the way to where it was
  select source, session_id, ts,
    epoch_us(ts - max(ts) over (partition by source, session_id order by sequence
      rows between unbounded preceding and 1 preceding)) as gap
  from events
)
select source, session_id, min(ts) as first_ts, max(ts) as last_ts,
  coalesce(sum(gap) filter (gap between 0 and 300000000), 0) // 1000000 as active_seconds
from gaps group by source, session_id order by active_seconds desc, session_id limit 20;

-- query: files most edited
with touched as (
  select file_path as path, file_op as op from events where event_type = 'tool_call' and files is null
  union all
  select f.path, f.op from (
    select unnest(from_json(files, '[{"path":"VARCHAR","op":"VARCHAR"}]')) as f
    from events where event_type = 'tool_call' and files is not null)
)
select path, count(*) as edits from touched where op in ('write', 'modify', 'create') and path is not null
group by path order by edits desc, path limit 20;

-- query: a text in all sessions
select ts, source, session_id, event_type, coalesce(text, tool_input::varchar, tool_output::varchar) as found
from events where concat_ws(' ', text, tool_input, tool_output, content) ilike '%slow down%'
order by ts desc, stream_sequence limit 50;

-- query: two weeks compared
with weeks as (
  select date_trunc('week', day)::date as week, sum(total) as tokens, sum(usd) as usd from calls group by all
)
select week, tokens, tokens - lag(tokens) over (order by week) as more_tokens, round(usd, 4) as usd,
  round(usd - lag(usd) over (order by week), 4) as more_usd
from weeks order by week desc limit 2;

-- query: errors by kind
select source, error_code, count(*) as errors, max(ts) as last_ts, arg_max(error_message, ts) as last_message
from events where error_code is not null or error_message is not null
group by all order by errors desc, source, error_code;

-- query: prompts a day
select ts::date as day, source, count(*) as prompts, count(distinct session_id) as sessions
from events where event_type = 'user_message' and origin is null and not is_internal
group by all order by day, source;

-- query: cost of subagents
select source, sum(total) filter (is_internal) as tokens, round(sum(usd) filter (is_internal), 4) as usd,
  round(100 * sum(total) filter (is_internal) / sum(total), 1) as percent
from calls group by all order by tokens desc nulls last, source;
