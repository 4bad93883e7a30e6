import type { Facts, Listener, Member, Monitor, Policy, Pool } from './facts.js'

/** What is wrong, and what to do about it. `down`: requests fail; `note`: they do not, but it may surprise. */
export type Finding = { weight: 'down' | 'note'; ids: readonly string[]; cause: string; remedy: string }

const EVENTS = 'GET /v2/lbaas/loadbalancers/ID/events tells what was asked and done'
/** A change usually takes effect within seconds. */
const LONG_PENDING_MS = 120_000
const HTTP_LIKE: ReadonlySet<string> = new Set(['HTTP', 'HTTPS', 'TERMINATED_HTTPS'])
/** Their clients have flows rather than connections. */
const DATAGRAMS: ReadonlySet<string> = new Set(['UDP', 'SCTP'])

/** Everything that is wrong with a load balancer, the first cause first. Pure. */
export function findCauses(facts: Facts): Finding[] {
  const found = [
    ...loadBalancerFindings(facts),
    ...facts.listeners.flatMap(listener => listenerFindings(facts, listener)),
    ...facts.pools.flatMap(pool => poolFindings(facts, pool)),
    ...facts.policies.flatMap(policyFindings),
  ]
  return [...found.filter(({ weight }) => weight === 'down'), ...found.filter(({ weight }) => weight === 'note')]
}

function loadBalancerFindings({ loadBalancer, listeners, requestedAt, now }: Facts): Finding[] {
  const { id, provisioning_status: provisioning, fault, operating_reason: reason } = loadBalancer
  const down = (cause: string, remedy: string): Finding => ({ weight: 'down', ids: [id], cause, remedy })
  const findings: Finding[] = []
  if (!loadBalancer.admin_state_up) {
    findings.push(down('the load balancer is disabled.', `enable it: openstack loadbalancer set --enable ${id}`))
  }
  if (provisioning === 'ERROR') {
    const retry = fault?.retry_at == null ? '' : `Krater tries again at ${fault.retry_at} UTC; `
    findings.push(
      down(
        `the last change failed: ${fault?.text ?? 'the API gives no reason'}`,
        `${retry}${EVENTS.replace('ID', id)}; an operator finds more with krater doctor`,
      ),
    )
  }
  if (requestedAt !== null && Date.parse(now) - Date.parse(`${requestedAt}Z`) > LONG_PENDING_MS) {
    findings.push(
      down(
        `the last change has been ${provisioning} since ${requestedAt} UTC.`,
        'the worker may be busy or stopped: an operator finds out with krater doctor',
      ),
    )
  }
  if (listeners.length === 0) {
    findings.push(
      down(
        'the load balancer has no listener, so it accepts no connections.',
        `create one: openstack loadbalancer listener create --protocol HTTP --protocol-port 80 ${id}`,
      ),
    )
  }
  const isOwn = reason !== null && loadBalancer.admin_state_up && !/^(Listener|Pool) /.test(reason.text)
  if (isOwn)
    findings.push(
      down(
        `${reason.text}.`,
        'Krater repairs or replaces the amphora; if this lasts, an operator finds more with krater doctor',
      ),
    )
  return findings
}

function listenerFindings({ policies, pools }: Facts, listener: Listener): Finding[] {
  const { id, protocol, protocol_port: port, default_pool_id: poolId, operating_status: status } = listener
  const find = (weight: Finding['weight'], cause: string, remedy: string): Finding => ({
    weight,
    ids: [id],
    cause,
    remedy,
  })
  if (!listener.admin_state_up) {
    return [
      find(
        'note',
        `the listener of port ${port} is disabled.`,
        `enable it: openstack loadbalancer listener set --enable ${id}`,
      ),
    ]
  }
  const findings: Finding[] = []
  if (status === 'DEGRADED') {
    findings.push(
      find(
        'down',
        `port ${port} has as many ${DATAGRAMS.has(protocol) ? 'flows' : 'connections'} as connection_limit allows (${listener.connection_limit}).`,
        `raise the limit: openstack loadbalancer listener set --connection-limit N ${id}`,
      ),
    )
  } else if (status === 'ERROR') {
    findings.push(
      find('down', `${listener.operating_reason?.text ?? 'the amphora does not serve the listener'}.`, EVENTS),
    )
  }
  const pool = pools.find(each => each.id === poolId)
  const otherwise = DATAGRAMS.has(protocol) ? 'refuses clients' : 'closes connections'
  const answers = HTTP_LIKE.has(protocol) ? 'answers 503' : otherwise
  const acts = policies.some(policy => policy.listener_id === id && policy.admin_state_up && policy.rules.length > 0)
  if (pool === undefined && protocol !== 'PROMETHEUS') {
    findings.push(
      find(
        acts ? 'note' : 'down',
        `the listener of port ${port} has no default pool, so it ${answers}${acts ? ' where no L7 policy matches' : ''}.`,
        `give it a pool: openstack loadbalancer listener set --default-pool POOL ${id}`,
      ),
    )
  }
  return findings
}

function poolFindings(facts: Facts, pool: Pool): Finding[] {
  const { id, everyMember: members } = pool
  const one = (weight: Finding['weight'], cause: string, remedy: string): Finding => ({
    weight,
    ids: [id],
    cause,
    remedy,
  })
  if (!pool.admin_state_up) {
    return [
      one(
        'down',
        `the pool ${titleOf(pool)} is disabled.`,
        `enable it: openstack loadbalancer pool set --enable ${id}`,
      ),
    ]
  }
  const isUsed =
    facts.listeners.some(({ default_pool_id }) => default_pool_id === id) ||
    facts.policies.some(({ redirect_pool_id }) => redirect_pool_id === id)
  if (!isUsed) {
    return [
      one(
        'note',
        `no listener or L7 policy uses the pool ${titleOf(pool)}.`,
        `use it: openstack loadbalancer listener set --default-pool ${id} LISTENER`,
      ),
    ]
  }
  if (members.length === 0) {
    return [
      one(
        'down',
        `the pool ${titleOf(pool)} has no member, so ${DATAGRAMS.has(pool.protocol) ? 'its clients are refused' : 'requests for it get 503 or a closed connection'}.`,
        `add one: openstack loadbalancer member create --address ADDRESS --protocol-port PORT ${id}`,
      ),
    ]
  }
  const idle = members.every(({ admin_state_up, weight }) => !admin_state_up || weight === 0)
  const findings = members.flatMap(member => memberFindings(pool, member))
  return idle
    ? [
        one(
          'down',
          `every member of the pool ${titleOf(pool)} is disabled or has weight 0.`,
          'enable one, or give it a weight',
        ),
        ...findings,
      ]
    : findings
}

function memberFindings(pool: Pool, member: Member): Finding[] {
  const { id, operating_status: status, operating_reason: reason } = member
  const note = (cause: string, remedy: string): Finding => ({ weight: 'note', ids: [id], cause, remedy })
  const where = `${addressOf(member.address, member.protocol_port)}`
  const set = `openstack loadbalancer member set`
  if (!member.admin_state_up)
    return [note(`the member ${where} is disabled.`, `enable it: ${set} --enable ${pool.id} ${id}`)]
  if (member.weight === 0)
    return [
      note(
        `the member ${where} has weight 0, so it gets no new connections.`,
        `give it a weight: ${set} --weight 1 ${pool.id} ${id}`,
      ),
    ]
  if (status !== 'ERROR') return []
  return [{ weight: 'down', ids: [id], ...checkFinding(reason?.text ?? '', member, pool.monitor) }]
}

/** What a failed health check means, by HAProxy's words for it. */
function checkFinding(text: string, member: Member, monitor: Monitor | null): Pick<Finding, 'cause' | 'remedy'> {
  const port = member.monitor_port ?? member.protocol_port
  const at = addressOf(member.monitor_address ?? member.address, port)
  const set = `openstack loadbalancer healthmonitor set`
  const monitorId = monitor?.id ?? 'MONITOR'
  const code = /HTTP (\d{3})/.exec(text)?.[1]
  if (code !== undefined) {
    const request = `${monitor?.http_method ?? 'GET'} ${monitor?.url_path ?? '/'}`
    return {
      cause: `${at} answers ${request} with ${code}; the health monitor expects ${monitor?.expected_codes ?? '200'}.`,
      remedy: code.startsWith('5')
        ? `repair the program there (its log says more); check: curl -i ${quoted(`http://${at}${monitor?.url_path ?? '/'}`)}`
        : `check another path, or accept the code: ${set} --url-path PATH --expected-codes ${code} ${monitorId}`,
    }
  }
  const known = CHECKS.find(({ words, type = monitor?.type }) => words.test(text) && type === monitor?.type)
  if (known === undefined)
    return { cause: `the health check of ${at} fails.`, remedy: 'look at the log of the server there' }
  return {
    cause: known.cause(at),
    remedy: known.remedy({
      ...{ port, type: monitor?.type ?? '', subnetId: member.subnet_id, timeout: monitor?.timeout ?? 0 },
      set: `${set} --timeout N ${monitorId}`,
    }),
  }
}

type Check = { port: number; type: string; subnetId: string | null; timeout: number; set: string }

/** The options with which ss lists what a probe of this type looks for. */
const socketsFor = (type: string): string => (type === 'UDP-CONNECT' ? '-lun' : type === 'SCTP' ? '-lSn' : '-ltn')

type CheckWords = {
  words: RegExp
  /** Only for monitors of this type. */
  type?: string
  cause: (at: string) => string
  remedy: (check: Check) => string
}

const CHECKS: readonly CheckWords[] = [
  {
    words: /Connection refused/,
    cause: at => `nothing listens on ${at}, as seen from the amphora.`,
    remedy: ({ port, type }) =>
      `start the server there, on an address other than 127.0.0.1, or correct the address or port of the member; check there: ss ${socketsFor(type)} 'sport = :${port}'`,
  },
  {
    words: /No route to host|unreachable/,
    cause: at => `the amphora has no route to ${at}, or nothing has this address.`,
    remedy: () =>
      'correct the address, or give the member the subnet_id through which the amphora reaches it; without a subnet_id, the load balancer needs a VIP of the IP version of the address',
  },
  {
    words: /^Layer4/,
    cause: at => `${at} does not answer the amphora's attempt to connect.`,
    remedy: ({ port, subnetId }) =>
      `see that the server runs and that no firewall drops port ${port} from the amphora; ${
        subnetId === null
          ? 'without a subnet_id, the amphora reaches the member by the gateway of its VIP network; from public, network.outside decides'
          : "the member's subnet_id must be the network that reaches it"
      }; on Krater's own machine, \`krater network open\` must name the port`,
  },
  {
    words: /^Layer6/,
    cause: at => `${at} accepts connections and does not complete the TLS handshake.`,
    remedy: () =>
      'check a server without TLS with a health monitor of type HTTP or TCP; otherwise repair its TLS settings',
  },
  {
    words: /^Layer7 timeout/,
    type: 'UDP-CONNECT',
    cause: at => `${at} does not answer what the health monitor sends.`,
    remedy: ({ timeout, set }) =>
      `see that the server answers the payload of the monitor's url_path, and that no firewall drops it; if it is slow, wait longer than ${timeout} s: ${set}`,
  },
  {
    words: /^Layer7 invalid/,
    type: 'UDP-CONNECT',
    cause: at => `${at} answers with something else than the health monitor expects.`,
    remedy: () => "correct the server, or the part of the monitor's url_path after the question mark",
  },
  {
    words: /^Layer7 timeout/,
    cause: at => `${at} accepts connections and does not answer the health check in time.`,
    remedy: ({ timeout, set }) => `find out why the server is slow, or wait longer than ${timeout} s: ${set}`,
  },
  {
    words: /^Layer7 invalid/,
    cause: at => `${at} answers the health check with something that is not HTTP.`,
    remedy: () => 'correct the port, or use a health monitor of type TCP (TLS-HELLO for a server with TLS)',
  },
  {
    words: /^Socket error/,
    cause: at => `${at} accepts connections and closes them before it answers.`,
    remedy: () => 'look at the log of the server there; a server that expects TLS may do this',
  },
]

function policyFindings(policy: Policy): Finding[] {
  const note = (cause: string, remedy: string): Finding => ({ weight: 'note', ids: [policy.id], cause, remedy })
  const name = titleOf(policy)
  if (!policy.admin_state_up) {
    return [
      note(
        `the L7 policy ${name} is disabled.`,
        `enable it: openstack loadbalancer l7policy set --enable ${policy.id}`,
      ),
    ]
  }
  if (policy.rules.length > 0) return []
  return [
    note(
      `the L7 policy ${name} has no rule, so it does nothing.`,
      `add one: openstack loadbalancer l7rule create --type PATH --compare-type STARTS_WITH --value /PATH ${policy.id}`,
    ),
  ]
}

export const titleOf = ({ name, id }: { name: string | null; id: string }): string => (name ? `${name} (${id})` : id)

/** One word of a shell command, whatever its owner wrote. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

export const addressOf = (address: string, port: number): string =>
  `${address.includes(':') ? `[${address}]` : address}:${port}`
