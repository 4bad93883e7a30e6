import * as z from 'zod'

const reason = z.object({ text: z.string(), since: z.string().nullable() }).nullable().default(null)

const common = {
  id: z.string(),
  name: z.string().nullable(),
  provisioning_status: z.string(),
  operating_status: z.string(),
  operating_reason: reason,
  admin_state_up: z.boolean(),
}

export const loadBalancerSchema = z.object({
  ...common,
  vip_address: z.string(),
  fault: z.object({ text: z.string(), since: z.string().nullish(), retry_at: z.string().nullish() }).nullish(),
})
export const listenerSchema = z.object({
  ...common,
  protocol: z.string(),
  protocol_port: z.number(),
  default_pool_id: z.string().nullable(),
  connection_limit: z.number(),
})
export const memberSchema = z.object({
  ...common,
  address: z.string(),
  subnet_id: z.string().nullable(),
  protocol_port: z.number(),
  weight: z.number(),
  monitor_address: z.string().nullable(),
  monitor_port: z.number().nullable(),
})
export const monitorSchema = z.object({
  ...common,
  type: z.string(),
  timeout: z.number(),
  http_method: z.string().nullable(),
  url_path: z.string().nullable(),
  expected_codes: z.string().nullable(),
  pools: z.array(z.object({ id: z.string() })),
})
export const poolSchema = z.object({
  ...common,
  protocol: z.string(),
  members: z.array(z.object({ id: z.string() })),
  loadbalancers: z.array(z.object({ id: z.string() })),
})
export const policySchema = z.object({
  ...common,
  action: z.string(),
  listener_id: z.string(),
  redirect_pool_id: z.string().nullable(),
  rules: z.array(z.object({ id: z.string() })),
})

export type LoadBalancer = z.output<typeof loadBalancerSchema>
export type Listener = z.output<typeof listenerSchema>
export type Member = z.output<typeof memberSchema>
export type Monitor = z.output<typeof monitorSchema>
export type Policy = z.output<typeof policySchema>
export type Pool = z.output<typeof poolSchema> & { monitor: Monitor | null; everyMember: Member[] }

/** A load balancer and everything below it, as its API shows them to the caller. */
export type Facts = {
  loadBalancer: LoadBalancer
  listeners: Listener[]
  policies: Policy[]
  pools: Pool[]
  /** The object that the caller asks about: it, what is above it and what it uses are explained. */
  focus: { kind: Kind; id: string }
  /** When the last change was requested, if it is not in effect yet. */
  requestedAt: string | null
  /** When the API answered, as ISO 8601 in UTC. */
  now: string
}

export type Kind = 'load balancer' | 'listener' | 'pool' | 'member' | 'health monitor' | 'L7 policy'
