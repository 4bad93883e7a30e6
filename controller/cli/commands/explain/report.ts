import { visible } from '../../terminal.js'
import { addressOf, type Finding, findCauses, titleOf } from './causes.js'
import type { Facts, Listener, Member, Pool } from './facts.js'

/** Lines of members per pool; those that are down come first. */
const MAX_MEMBERS = 10
/** Notes and further causes. */
const MAX_OTHERS = 10

type Shown = Pick<Facts, 'listeners' | 'policies' | 'pools'>

/**
 * Says whether the load balancer, or the object below it that the caller asks about, works: what was checked, the first
 * cause, and what to do. Pure.
 */
export function explainFacts(facts: Facts): { lines: string[]; works: boolean } {
  const shown = shownWith(facts)
  const ids = new Set([
    facts.loadBalancer.id,
    ...[...shown.listeners, ...shown.policies, ...shown.pools].map(({ id }) => id),
    ...shown.pools.flatMap(({ everyMember }) => everyMember.map(({ id }) => id)),
  ])
  const findings = findCauses(facts).filter(finding => finding.ids.every(id => ids.has(id)))
  const statuses = [facts.loadBalancer, ...shown.listeners, ...shown.pools]
  const isWell = [...statuses, ...(facts.focus.kind === 'member' ? membersOf(shown) : [])].every(
    ({ operating_status: status }) => status === 'ONLINE' || status === 'NO_MONITOR',
  )
  const works = isOnline(facts, isWell) && !findings.some(({ weight }) => weight === 'down')
  return { lines: [...treeLines(facts, shown), ...conclusion(facts, shown, findings, works)].map(visible), works }
}

const membersOf = ({ pools }: Shown): Member[] => pools.flatMap(({ everyMember }) => everyMember)

/** For the load balancer itself its own status counts: a disabled listener or an unused pool is a note. */
const isOnline = ({ loadBalancer, focus }: Facts, isWell: boolean): boolean =>
  focus.kind === 'load balancer' || focus.kind === 'L7 policy' ? loadBalancer.operating_status === 'ONLINE' : isWell

/** The objects on the way from the load balancer to the object in focus, and those that it uses. */
function shownWith({ listeners, policies, pools, focus }: Facts): Shown {
  const pool = pools.find(
    ({ id, monitor, everyMember }) =>
      id === focus.id || monitor?.id === focus.id || everyMember.some(member => member.id === focus.id),
  )
  switch (focus.kind) {
    case 'load balancer':
      return { listeners, policies, pools }
    case 'listener':
    case 'L7 policy': {
      const owner = policies.find(({ id }) => id === focus.id)?.listener_id ?? focus.id
      const own = policies.filter(({ id, listener_id }) => id === focus.id || listener_id === focus.id)
      const ofListener = listeners.filter(({ id }) => id === owner)
      const used = new Set([
        ...(focus.kind === 'listener' ? ofListener.map(({ default_pool_id }) => default_pool_id) : []),
        ...own.map(({ redirect_pool_id }) => redirect_pool_id),
      ])
      return { listeners: ofListener, policies: own, pools: pools.filter(({ id }) => used.has(id)) }
    }
    case 'pool':
    case 'health monitor':
      return { listeners: [], policies: [], pools: pool === undefined ? [] : [pool] }
    case 'member': {
      const everyMember = pool?.everyMember.filter(({ id }) => id === focus.id) ?? []
      return { listeners: [], policies: [], pools: pool === undefined ? [] : [{ ...pool, everyMember }] }
    }
  }
}

function treeLines({ loadBalancer }: Facts, { listeners, policies, pools }: Shown): string[] {
  return [
    `load balancer ${titleOf(loadBalancer)}: ${statusOf(loadBalancer)}`,
    ...listeners.map(listener => `  listener ${listenerTitle(listener)}: ${statusOf(listener)}`),
    ...policies.map(
      policy =>
        `  L7 policy ${titleOf(policy)}: ${policy.operating_status}, ${counted(policy.rules.length, 'rule', 'rules')}`,
    ),
    ...pools.flatMap(poolLines),
  ]
}

const listenerTitle = (listener: Listener): string =>
  `${listener.name ? `${listener.name} ` : ''}${listener.protocol} ${listener.protocol_port} (${listener.id})`

const memberTitle = ({ name, address, protocol_port: port }: Member): string =>
  `${name ? `${name} ` : ''}${addressOf(address, port)}`

function poolLines(pool: Pool): string[] {
  const worstFirst = [...pool.everyMember].sort((a, b) => rank(a) - rank(b))
  const rest = worstFirst.length - MAX_MEMBERS
  return [
    `  pool ${titleOf(pool)}: ${statusOf(pool)}`,
    ...worstFirst.slice(0, MAX_MEMBERS).map(member => `    member ${memberTitle(member)}: ${statusOf(member)}`),
    ...(rest > 0 ? [`    and ${rest} more`] : []),
  ]
}

const rank = ({ operating_status: status }: Member): number => ['ERROR', 'OFFLINE', 'DRAINING'].indexOf(status) >>> 0

type Status = Pick<Member, 'operating_status' | 'operating_reason' | 'provisioning_status'>

function statusOf({ operating_status: status, operating_reason: reason, provisioning_status: change }: Status): string {
  const since = reason?.since == null ? '' : ` since ${reason.since} UTC`
  const why = reason === null ? '' : `: ${reason.text}`
  return `${status}${change === 'ACTIVE' ? '' : ` (${change})`}${since}${why}`
}

const counted = (count: number, one: string, several: string): string => `${count} ${count === 1 ? one : several}`

function conclusion(facts: Facts, shown: Shown, findings: readonly Finding[], works: boolean): string[] {
  const [first, ...others] = findings
  const checked = `Checked: ${[
    'the load balancer and its last change',
    counted(shown.listeners.length, 'listener', 'listeners'),
    counted(shown.policies.length, 'L7 policy', 'L7 policies'),
    counted(shown.pools.length, 'pool', 'pools'),
    counted(membersOf(shown).length, 'member', 'members'),
  ].join(', ')}.`
  if (works) {
    const notes = findings.map(({ cause, remedy }) => `Note: ${cause} ${capital(remedy)}`)
    const { kind, id } = facts.focus
    const verdict = findings.some(({ ids }) => ids.includes(id))
      ? `Nothing is broken, but see what is noted of the ${kind}.`
      : `All is well with the ${kind}.`
    return [verdict, ...limited(notes), checked]
  }
  if (first === undefined) {
    return [
      'First cause: the API says no more than the status.',
      'What to do: wait for the next report of the amphora, some seconds after a change.',
      checked,
    ]
  }
  const also = others.map(({ cause, weight }) => `${weight === 'down' ? 'Also' : 'Note'}: ${cause}`)
  return [`First cause: ${first.cause}`, `What to do: ${first.remedy}`, ...limited(also), checked]
}

const capital = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`

const limited = (lines: readonly string[]): string[] =>
  lines.length <= MAX_OTHERS ? [...lines] : [...lines.slice(0, MAX_OTHERS), `And ${lines.length - MAX_OTHERS} more.`]
