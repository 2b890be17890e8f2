-- Views for DuckDB over the export in the folder events. Tokens and costs are those of tributary stats: a sum over
-- sessions reads calls, not events, for an API call that several sessions have counts once. Null is unknown.
-- The files leave out those that a compaction has replaced and not removed yet.

set timezone = 'UTC'; -- of days

set variable files = ( -- set it again to see new files
  with files as materialized (
    select file, parse_dirpath(file) as folder, split(parse_filename(file, true), '-') as part
    from glob('events/**/*.parquet'))
  select list(file) from files f where not exists (
    from files g where g.folder = f.folder and g.file <> f.file and g.part[2] <= f.part[2] and g.part[3] >= f.part[3]));

create view events as -- JSON is text in files of older versions
select * replace (coalesce(date, ts::date, stored_at::date) as date, files::json as files, metadata::json as metadata,
  tool_metadata::json as tool_metadata, tool_input::json as tool_input, tool_output::json as tool_output,
  content::json as content, message_metadata::json as message_metadata, labels::json as labels, raw::json as raw),
  labels::json->>'team' as team
from read_parquet(getvariable('files'), union_by_name = true, hive_partitioning = false);

create view prices as select * from read_csv('events/_export/prices.csv'); -- of table_date

create view calls as
with named as ( -- an event that names no model counts for the last one of its session, else for its first one
  select *, coalesce(model, metadata->>'$.model') as stated,
    coalesce(last_value(stated ignore nulls) over so_far,
      first_value(stated ignore nulls) over of_session) as used_model
  from events
  window so_far as (partition by source, session_id order by sequence rows unbounded preceding),
    of_session as (partition by source, session_id order by sequence
      rows between unbounded preceding and unbounded following)
), used as (
  select source, session_id, case when usage_key_unique then usage_key end as shared_key, used_model as model,
    ts::date as day, is_internal, repository, branch, pull_request, host, user_name, team,
    case when usage_prompt > 272000 then 272000 when usage_prompt > 200000 then 200000
      when usage_prompt > 128000 then 128000 else 0 end as prompt_above,
    sum(usage_input) as input, sum(usage_cache_read) as cache_read, sum(usage_cache_write) as cache_write,
    sum(usage_cache_write_1h) as cache_write_1h, sum(usage_output) as output, sum(usage_reasoning) as reasoning,
    sum(tokens_total) as total, sum(usage_web_search_requests) as searches, sum(usage_cost_usd) as vendor_usd,
    min(ts) as first_ts
  from named where tokens_total is not null group by all
), sized as (
  select *, sum(total) over (partition by source, shared_key, session_id) as session_total,
    sum(vendor_usd) over (partition by source, shared_key, session_id) as session_usd,
    min(first_ts) over (partition by source, session_id) as session_start
  from used
), counted as (
  select * from sized where shared_key is null
  union all
  select * from sized where shared_key is not null
  qualify dense_rank() over (partition by source, shared_key
    order by session_total desc, session_usd desc nulls last, session_start, session_id) = 1
)
select c.*, (c.input * coalesce(p.input, 0) + c.cache_read * coalesce(p.cache_read, 0)
    + (c.cache_write - coalesce(c.cache_write_1h, 0)) * coalesce(p.cache_write, 0)
    + coalesce(c.cache_write_1h * p.cache_write_1h, 0) + c.output * p.output + c.reasoning * p.reasoning) / 1e6
  + coalesce(c.searches * p.web_search, 0) as usd -- null without a price
from counted c asof left join prices p on c.model = p.model and c.prompt_above >= p.above;

create view tool_calls as
select source, session_id, coalesce(tool_call_id, event_id) as call, any_value(tool_name) as tool, min(ts) as ts,
  arg_max(tool_status, stream_sequence) filter (event_type = 'tool_result' and tool_status <> 'in_progress') as outcome,
  coalesce(arg_max(tool_latency_ms, stream_sequence) filter (event_type <> 'log' and tool_latency_ms is not null),
    arg_min(tool_latency_ms, stream_sequence) filter (event_type = 'log')) as latency_ms
from events where event_type in ('tool_call', 'tool_result')
  or event_type = 'log' and tool_call_id is not null and tool_latency_ms is not null -- the latency alone
group by all having bool_or(event_type <> 'log');
