/**
 * A load balancer with everything below it, as it is wanted: what the API has stored and a provider makes true.
 * Objects under deletion are in it, marked by their change.
 */
export type LoadBalancerTree = {
  id: string
  projectId: string
  name: string
  adminStateUp: boolean
  provider: string
  topology: 'SINGLE' | 'ACTIVE_STANDBY'
  vip: { address: string; subnetId: string | null; networkId: string | null; portId: string | null; ownsPort: boolean }
  generation: number
  appliedGeneration: number
  change: Change
  listeners: ListenerNode[]
  pools: PoolNode[]
}

export type Change = 'create' | 'update' | 'delete'

export type ListenerProtocol = 'HTTP' | 'TCP'
export type PoolProtocol = 'HTTP' | 'TCP'
export type Algorithm = 'ROUND_ROBIN' | 'LEAST_CONNECTIONS' | 'SOURCE_IP'
export type MonitorType = 'HTTP' | 'TCP'

export type ListenerNode = {
  id: string
  change: Change
  adminStateUp: boolean
  protocol: ListenerProtocol
  protocolPort: number
  /** -1 is unlimited. */
  connectionLimit: number
  defaultPoolId: string | null
  /** Header name -> "true" or "false". */
  insertHeaders: Readonly<Record<string, string>>
  /** Milliseconds. */
  timeoutClientData: number
  timeoutMemberConnect: number
  timeoutMemberData: number
  timeoutTcpInspect: number
}

export type PoolNode = {
  id: string
  change: Change
  adminStateUp: boolean
  protocol: PoolProtocol
  lbAlgorithm: Algorithm
  healthMonitor: HealthMonitorNode | null
  members: MemberNode[]
}

export type MemberNode = {
  id: string
  change: Change
  /** The server's id in HAProxy: unique in the pool, never reused. */
  serverNumber: number
  adminStateUp: boolean
  address: string
  protocolPort: number
  weight: number
  backup: boolean
  subnetId: string | null
  monitorAddress: string | null
  monitorPort: number | null
}

export type HealthMonitorNode = {
  id: string
  change: Change
  adminStateUp: boolean
  type: MonitorType
  /** Seconds. */
  delay: number
  timeout: number
  /** Successes until up, failures until down. */
  maxRetries: number
  maxRetriesDown: number
  httpMethod: string | null
  urlPath: string | null
  expectedCodes: string | null
  httpVersion: number | null
  domainName: string | null
}
