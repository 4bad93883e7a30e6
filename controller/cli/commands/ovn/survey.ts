import { createLog } from '../../../log/log.js'
import type { Desired, Holder, Owner } from '../../../ovn/northbound/desired.js'
import type { Northbound } from '../../../ovn/northbound/northbound.js'
import type { Difference } from '../../../ovn/northbound/plan-rows.js'
import type { ChassisState } from '../../../ovn/southbound/installed.js'
import { OperatorError } from '../../operator-error.js'
import { networkDriverOf, openNetwork, requireInstanceId } from '../../wiring/drivers.js'
import { openDatabase, openInstance } from '../../wiring/instance.js'
import { openNorthbound, openSouthbound, ovnPlaceOf } from '../../wiring/network/ovn.js'
import { type NotCompared, type Reason, readDesired, readDesiredOf, type Tables } from './desired-now.js'

/** For rows to follow the tables. */
const FOLLOW_MS = 1_000

/** Rows may also wait for a place that is not there. */
type Deviation = Difference | { kind: 'waiting'; holder: Holder }

/** An object whose rows in OVN are not as the tables say. */
type Finding = { owner: Owner; differences: readonly Deviation[] }

type Comparison = {
  /** How many objects have rows, or should. */
  objects: number
  findings: Finding[]
  notCompared: NotCompared[]
}

export type Survey = Comparison & {
  northbound: Northbound
  tables: Tables
  /** `nb_cfg` of the northbound database. */
  change: number
  /** The last one that northd has worked out. */
  computed: number
  chassis: ChassisState[]
}

/**
 * Compares all rows of OVN's northbound database with the tables, and changes nothing.
 * @throws OperatorError without networks in OVN, OvsdbUnreachable
 */
export async function withSurvey<R>(directory: string, work: (survey: Survey) => Promise<R>): Promise<R> {
  const instance = openInstance(directory)
  const { name, switching } = networkDriverOf(instance)
  if (switching !== 'ovn')
    throw new OperatorError(
      `network.driver is ${name}: Krater has no networks in OVN. A new installation has them with \`network.driver: ovn\`.`,
    )
  const databases = [openDatabase(instance, 'network', 'ovn'), openDatabase(instance, 'load_balancer', 'ovn')] as const
  const log = createLog('ovn', 'silent')
  const [northbound, southbound] = [openNorthbound(instance, log), openSouthbound(instance, log)]
  try {
    await Promise.all([northbound.client.ready(5_000), southbound.client.ready(5_000)])
    const [networkDatabase, database] = databases
    const tables = {
      ...{ database, networkDatabase, network: await openNetwork(instance, networkDatabase) },
      ...{ instance: requireInstanceId(instance.directory), place: ovnPlaceOf(instance, { northbound, southbound }) },
    }
    const comparison = await compare(northbound, tables)
    const [change, computed, chassis] = [northbound.change(), southbound.computed(), southbound.chassis()]
    return await work({ ...comparison, ...{ northbound, tables, change, computed, chassis } })
  } finally {
    await Promise.all([northbound.stop(), southbound.stop(), ...databases.map(database => database.destroy())])
  }
}

/** Finds what differs from the tables, and still does when it is looked at again: others may change both meanwhile. */
export async function compare(northbound: Northbound, tables: Tables): Promise<Comparison> {
  // Before the tables: rows that come meanwhile are not without an object.
  const present = northbound.owners()
  const first = await readDesired(tables, present)
  const suspects = await differing(northbound, first.desired, FOLLOW_MS)
  const again = await readDesiredOf(tables, suspects)
  const findings = again.desired
    .map(one => ({ owner: one.owner, differences: deviationsOf(northbound, one) }))
    .filter(({ differences }) => differences.length > 0)
  const notCompared = [...first.notCompared, ...again.notCompared]
  return { objects: first.desired.length, findings, notCompared }
}

/** Owners whose rows are not as they want them within a time. */
export async function differing(northbound: Northbound, wanted: readonly Desired[], limitMs: number): Promise<Owner[]> {
  let late = [...wanted]
  await northbound.client.until(() => {
    late = late.filter(one => deviationsOf(northbound, one).length > 0)
    return late.length === 0
  }, limitMs)
  return late.map(({ owner }) => owner)
}

function deviationsOf(northbound: Northbound, desired: Desired): Deviation[] {
  const { differences, missingHolders } = northbound.plan(desired)
  const places = new Map(missingHolders.map(holder => [holder.uuid, holder]))
  return [...differences, ...[...places.values()].map((holder): Deviation => ({ kind: 'waiting', holder }))]
}

/** A difference in words. */
export function wordsOf(difference: Deviation): string {
  switch (difference.kind) {
    case 'missing':
      return `${difference.table} ${difference.uuid} is missing`
    case 'different':
      return `${difference.table} ${difference.uuid} differs: ${difference.columns.join(', ')}`
    case 'superfluous':
      return `${difference.table} ${difference.uuid} should not be there`
    case 'not held':
      return `${difference.uuid} is not in ${difference.holder.column} of ${difference.holder.table} ${difference.holder.uuid}`
    case 'held elsewhere':
      return `${difference.uuid} should not be in ${difference.holder.column} of ${difference.holder.table} ${difference.holder.uuid}`
    case 'waiting':
      return `rows wait for ${difference.holder.table} ${difference.holder.uuid}, which is missing`
  }
}

export const countOf = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`

const REASONS: Readonly<Record<Reason, string>> = {
  changing: 'a change is under way',
  failed: 'ERROR: the last change has failed, and Krater tries it again',
  portless: 'a port that they need is missing',
  down: 'their network is down',
}

/** Which load balancers are not compared, and why: a line for each reason. Names those at which nobody is at work. */
export function notComparedLines(notCompared: readonly NotCompared[]): string[] {
  return (Object.keys(REASONS) as Reason[]).flatMap(reason => {
    const owners = notCompared.filter(one => one.reason === reason).map(({ owner }) => owner)
    const names = reason === 'changing' ? '' : ` (${owners.join(', ')})`
    return owners.length === 0
      ? []
      : [`${countOf(owners.length, 'load balancer')} not compared: ${REASONS[reason]}${names}.`]
  })
}
