import { existsSync } from 'node:fs'
import { REPLY_PRIORITY, TUNNEL_PRIORITY } from '../handover/plan-handover.js'
import type { Log } from '../log/log.js'
import type { Repairs } from '../log/repairs.js'
import { addMissing, planNetwork, prepareMachine, removeLeftovers } from '../network/configure.js'
import { guard } from '../network/guard.js'
import { observeLinks, observeNetwork } from '../network/observed.js'
import type { InterfacePlan, IpCommand } from '../network/plan-interfaces.js'
import { haproxyGroup } from '../ping/ping.js'
import { run } from '../process/run.js'
import type { Desired } from '../protocol/desired.js'
import type { Mismatch } from '../protocol/repairs.js'

/** Isolates the management network, on machines that came with it; safe to run at any time. */
const MANAGEMENT_SCRIPT = '/opt/krater/management.sh'
const MANAGEMENT_TABLE = '10'
/** Rules with a priority ahead of the VIPs' belong to the management network, except those of a handover. */
const MANAGEMENT_RULE = new RegExp(`^(?!${TUNNEL_PRIORITY}:|${REPLY_PRIORITY}:)\\d{1,2}:`)
/** Not the handover's table: it holds an entry for every connection. */
const FILTER_TABLES = ['krater_pair', 'krater_management']

/**
 * Reads the kernel's network and adds what it lacks of the desired state.
 * @returns what it cannot repair: an interface that is missing or has no carrier must be plugged from outside
 */
export type RepairNetwork = (desired: Desired) => Promise<Mismatch[]>

export function createNetworkRepair(repairs: Repairs, log: Log): RepairNetwork {
  const repairFilter = createFilterRepair(repairs)
  return async desired => {
    const mismatches = new Set<Mismatch>()
    const observed = await observeNetwork()
    let { links } = observed
    const plugged = new Set(links.map(({ mac }) => mac))
    const present = { ...desired, interfaces: desired.interfaces.filter(({ mac }) => plugged.has(mac)) }
    if (present.interfaces.length < desired.interfaces.length) mismatches.add('interface')

    const before = await planNetwork(present, desired, observed)
    if (planLines(before).length > 0) {
      await addMissing(before, present, desired, log).catch(error => log.error(String(error)))
      await removeLeftovers(await planNetwork(present, desired), log)
      const left = await planNetwork(present, desired)
      const remaining = new Set(planLines(left))
      const done = planLines(before).filter(line => !remaining.has(line))
      if (done.length > 0) repairs.note(`network: ${done.join('; ')}`)
      for (const { line, essential } of left.additions) {
        if (essential) mismatches.add(line.startsWith('addr') ? 'address' : 'route')
      }
      links = await observeLinks()
    }
    const carrying = new Map(links.map(({ mac, carrier }) => [mac, carrier]))
    if (desired.interfaces.some(({ mac }) => !carrying.get(mac))) mismatches.add('interface')
    if (!(await repairFilter(desired))) mismatches.add('filter')
    prepareMachine(haproxyGroup(), log)
    return [...mismatches]
  }
}

function planLines({ renames, links, additions, removals }: InterfacePlan): string[] {
  const line = (command: IpCommand) => command.line
  return [...renames.map(({ from, to }) => `link ${from} is ${to}`), ...[...links, ...additions, ...removals].map(line)]
}

/** Compares the packet filter and the management network's rules with their state just after they were set. */
function createFilterRepair(repairs: Repairs): (desired: Desired) => Promise<boolean> {
  let known: { pair: string; filter: string } | null = null
  return async desired => {
    const pair = JSON.stringify(desired.pair)
    if (known?.pair === pair && known.filter === (await readFilter())) return true
    try {
      await guard(desired.pair)
      if (existsSync(MANAGEMENT_SCRIPT)) {
        const { status, stderr } = await run('/bin/bash', [MANAGEMENT_SCRIPT])
        if (status !== 0) throw new Error(`${MANAGEMENT_SCRIPT}: ${stderr.trim().slice(0, 500)}`)
      }
    } catch {
      known = null
      return false
    }
    if (known?.pair === pair) repairs.note('the packet filter or the management rules were changed')
    known = { pair, filter: await readFilter() }
    return true
  }
}

async function readFilter(): Promise<string> {
  const ask = `rule show\nroute show table ${MANAGEMENT_TABLE}\n`
  const [filters, routing] = await Promise.all([
    Promise.all(FILTER_TABLES.map(table => run('nft', ['-s', 'list', 'table', 'inet', table]))),
    Promise.all(['-4', '-6'].map(family => run('ip', [family, '-force', '-batch', '-'], { input: ask }))),
  ])
  const rules = routing.flatMap(({ stdout }) =>
    stdout.split('\n').filter(line => MANAGEMENT_RULE.test(line) || line.includes('mgmt0')),
  )
  return [...filters.map(({ stdout }) => stdout), ...rules].join('\n')
}
