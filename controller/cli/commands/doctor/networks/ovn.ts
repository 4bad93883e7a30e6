import { join } from 'node:path'
import { type Finding, fault, note, ok } from '../../../../checks/finding.js'
import { type ChassisState, isBehind } from '../../../../ovn/southbound/installed.js'
import { OvsdbUnreachable } from '../../../../ovsdb/errors.js'
import type { Instance } from '../../../wiring/instance.js'
import { hasOwnOvn, ownOvnOf, usesOvn } from '../../../wiring/network/ovn.js'
import { countOf, type Survey, withSurvey } from '../../ovn/survey.js'

/** Checks that OVN runs, has what the tables say, and that its hypervisors follow. */
export async function checkOvn(instance: Instance): Promise<Finding[]> {
  if (!usesOvn(instance)) return []
  const isOwn = hasOwnOvn(instance)
  const missing = isOwn ? ownOvnOf(instance.directory).missing() : []
  const remedy = isOwn
    ? `krater up --detach, which starts OVN; its logs are in ${join(instance.directory, 'ovn')}`
    : 'see the settings `ovn`, and whether its servers run'
  const stopped = missing.length === 0 ? [] : [fault('OVN', `runs without ${namesOf(missing)}`, remedy)]
  // Without them, there is nothing to compare.
  if (missing.includes('northbound') || missing.includes('southbound')) return stopped
  try {
    return await withSurvey(instance.directory, async ({ objects, findings, ...progress }) => [
      ...stopped,
      findings.length === 0
        ? ok('OVN', `has what the tables say: ${countOf(objects, 'object')}`)
        : fault(
            'OVN',
            `${countOf(findings.length, 'object')} of ${objects} differ from the tables`,
            'krater ovn check shows the differences, krater ovn sync repairs them; Krater does so itself while it runs',
          ),
      ...progressFindings(progress),
    ])
  } catch (error) {
    if (!(error instanceof OvsdbUnreachable)) throw error
    return [...stopped, fault('OVN', error.message.replace(/\.$/, ''), remedy)]
  }
}

const DATABASES = ['switch', 'northbound', 'southbound']

const namesOf = (daemons: readonly string[]): string =>
  daemons.map(name => (DATABASES.includes(name) ? `the database ${name}` : name)).join(', ')

type Progress = Pick<Survey, 'change' | 'computed' | 'chassis'>

/** Whether northd and the hypervisors have the last change. Pure. */
export function progressFindings({ change, computed, chassis }: Progress): Finding[] {
  const northd = late(
    `ovn-northd has worked out the change ${computed}; the last one is ${change}`,
    'if it stays behind, see whether ovn-northd runs: until then, no change takes effect',
  )
  return [...(computed < change ? [northd] : []), ...chassisFindings(chassis, Math.min(computed, change))]
}

/** @param change the last one that they can know */
function chassisFindings(chassis: readonly ChassisState[], change: number): Finding[] {
  if (chassis.length === 0)
    return [fault('OVN', 'no hypervisor is there: nothing is switched', 'start ovn-controller on the hypervisors')]
  return chassis
    .filter(one => isBehind(one, change))
    .map(({ name, hostname, change: has }) =>
      late(
        `the hypervisor ${hostname} (${name}) has the change ${has}; the last one is ${change}`,
        'if it stays behind, look at ovn-controller there: nobody waits for it, and it catches up when it is back',
      ),
    )
}

/** It may catch up by itself. */
const late = (text: string, remedy: string): Finding => ({ ...note('OVN', text), remedy })
