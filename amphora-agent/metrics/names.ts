/** HAProxy's families of metrics that Octavia has too, without the prefix `haproxy_<subject>_`. */
type Families = {
  /** What Octavia calls the subject. */
  prefix: string
  /** HAProxy's labels and Octavia's. */
  labels: Readonly<Record<string, string>>
  same: string
  /** Families that Octavia names differently, with the whole name. */
  renamed?: Readonly<Record<string, string>>
}

const FAMILIES: Readonly<Record<string, Families>> = {
  process: {
    prefix: 'octavia_loadbalancer',
    labels: {},
    same: `max_connections current_connections connections_total requests_total max_ssl_connections
      current_ssl_connections ssl_connections_total current_connection_rate limit_connection_rate max_connection_rate
      current_session_rate limit_session_rate max_session_rate current_ssl_rate limit_ssl_rate max_ssl_rate
      current_frontend_ssl_key_rate max_frontend_ssl_key_rate frontend_ssl_reuse current_backend_ssl_key_rate
      max_backend_ssl_key_rate ssl_cache_lookups_total ssl_cache_misses_total http_comp_bytes_in_total
      http_comp_bytes_out_total limit_http_comp listeners dropped_logs_total`,
    renamed: {
      pool_allocated_bytes: 'octavia_memory_pool_allocated_bytes',
      pool_used_bytes: 'octavia_memory_pool_used_bytes',
      pool_failures_total: 'octavia_memory_pool_failures_total',
    },
  },
  frontend: {
    prefix: 'octavia_listener',
    labels: { proxy: 'listener' },
    same: `status current_sessions max_sessions limit_sessions sessions_total limit_session_rate max_session_rate
      connections_rate_max connections_total bytes_in_total bytes_out_total requests_denied_total
      responses_denied_total request_errors_total denied_connections_total denied_sessions_total
      failed_header_rewriting_total http_requests_rate_max http_requests_total http_responses_total
      intercepted_requests_total http_cache_lookups_total http_cache_hits_total http_comp_bytes_in_total
      http_comp_bytes_out_total http_comp_bytes_bypassed_total http_comp_responses_total`,
  },
  backend: {
    prefix: 'octavia_pool',
    labels: { proxy: 'pool' },
    same: `status current_sessions max_sessions limit_sessions sessions_total max_session_rate last_session_seconds
      current_queue max_queue connection_attempts_total connection_reuses_total bytes_in_total bytes_out_total
      queue_time_average_seconds connect_time_average_seconds response_time_average_seconds total_time_average_seconds
      max_queue_time_seconds max_connect_time_seconds max_response_time_seconds max_total_time_seconds
      requests_denied_total responses_denied_total connection_errors_total response_errors_total retry_warnings_total
      redispatch_warnings_total failed_header_rewriting_total client_aborts_total check_up_down_total
      check_last_change_seconds downtime_seconds_total loadbalanced_total http_requests_total http_responses_total
      http_cache_lookups_total http_cache_hits_total http_comp_bytes_in_total http_comp_bytes_out_total
      http_comp_bytes_bypassed_total http_comp_responses_total`,
    renamed: {
      server_aborts_total: 'octavia_pool_member_aborts_total',
      active_servers: 'octavia_pool_active_members',
      backup_servers: 'octavia_pool_backup_members',
    },
  },
  server: {
    prefix: 'octavia_member',
    labels: { proxy: 'pool', server: 'member' },
    same: `status current_sessions max_sessions limit_sessions sessions_total max_session_rate last_session_seconds
      current_queue max_queue queue_limit bytes_in_total bytes_out_total queue_time_average_seconds
      connect_time_average_seconds response_time_average_seconds total_time_average_seconds max_queue_time_seconds
      max_connect_time_seconds max_response_time_seconds max_total_time_seconds connection_attempts_total
      connection_reuses_total responses_denied_total connection_errors_total response_errors_total
      retry_warnings_total redispatch_warnings_total failed_header_rewriting_total client_aborts_total
      server_aborts_total weight check_failures_total check_up_down_total downtime_seconds_total
      check_last_change_seconds current_throttle loadbalanced_total http_responses_total idle_connections_current
      idle_connections_limit`,
  },
}

/** What one of HAProxy's families is called by Octavia. */
export type OctaviaFamily = { name: string; labels: Readonly<Record<string, string>> }

/** By HAProxy's name. */
export const OCTAVIA_FAMILIES: ReadonlyMap<string, OctaviaFamily> = new Map(
  Object.entries(FAMILIES).flatMap(([subject, { prefix, labels, same, renamed = {} }]) => [
    ...same.split(/\s+/).map(name => [`haproxy_${subject}_${name}`, { name: `${prefix}_${name}`, labels }] as const),
    ...Object.entries(renamed).map(([name, whole]) => [`haproxy_${subject}_${name}`, { name: whole, labels }] as const),
  ]),
)
