/**
 * A load balancer with everything below it, as it is desired: what the API has stored and a provider makes true.
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
  /** Further addresses of the VIP's port, each on a subnet of its own. */
  additionalVips: { address: string; subnetId: string }[]
  generation: number
  appliedGeneration: number
  change: Change
  listeners: ListenerNode[]
  pools: PoolNode[]
}

export type Change = 'create' | 'update' | 'delete'

export type ListenerProtocol = 'HTTP' | 'HTTPS' | 'TCP' | 'TERMINATED_HTTPS' | 'UDP' | 'SCTP' | 'PROMETHEUS'
export type PoolProtocol = 'HTTP' | 'HTTPS' | 'PROXY' | 'PROXYV2' | 'TCP' | 'UDP' | 'SCTP'
export type Algorithm = 'ROUND_ROBIN' | 'LEAST_CONNECTIONS' | 'SOURCE_IP' | 'SOURCE_IP_PORT'
export type MonitorType = 'HTTP' | 'HTTPS' | 'PING' | 'TCP' | 'TLS-HELLO' | 'UDP-CONNECT' | 'SCTP'
export type L7Action = 'REJECT' | 'REDIRECT_TO_POOL' | 'REDIRECT_TO_URL' | 'REDIRECT_PREFIX'
export type L7RuleType =
  | 'HOST_NAME'
  | 'PATH'
  | 'FILE_TYPE'
  | 'HEADER'
  | 'COOKIE'
  | 'SSL_CONN_HAS_CERT'
  | 'SSL_VERIFY_RESULT'
  | 'SSL_DN_FIELD'
export type L7CompareType = 'REGEX' | 'STARTS_WITH' | 'ENDS_WITH' | 'CONTAINS' | 'EQUAL_TO'

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
  /** Sources that may connect; null is all. */
  allowedCidrs: readonly string[] | null
  /** By position. */
  l7Policies: L7PolicyNode[]
}

export type L7PolicyNode = {
  id: string
  change: Change
  adminStateUp: boolean
  action: L7Action
  position: number
  redirectPoolId: string | null
  redirectUrl: string | null
  redirectPrefix: string | null
  redirectHttpCode: number | null
  /** All must match; a policy without any never does. */
  rules: L7RuleNode[]
}

export type L7RuleNode = {
  id: string
  change: Change
  adminStateUp: boolean
  type: L7RuleType
  compareType: L7CompareType
  /** Name of the header or cookie. */
  key: string | null
  value: string
  invert: boolean
}

export type PoolNode = {
  id: string
  change: Change
  adminStateUp: boolean
  protocol: PoolProtocol
  lbAlgorithm: Algorithm
  sessionPersistence: SessionPersistence | null
  /** Seconds in which a member that leaves may finish what is under way. */
  deregistrationDelay: number
  healthMonitor: HealthMonitorNode | null
  members: MemberNode[]
}

export type SessionPersistence = {
  type: 'SOURCE_IP' | 'HTTP_COOKIE' | 'APP_COOKIE'
  cookieName: string | null
  /** Seconds. */
  persistenceTimeout: number | null
  /** A netmask. */
  persistenceGranularity: string | null
}

export type MemberNode = {
  id: string
  change: Change
  /** The server's id in HAProxy: unique in the pool, never reused. */
  serverNumber: number
  adminStateUp: boolean
  /** Its monitor last said so. */
  isDown: boolean
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
