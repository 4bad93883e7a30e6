import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Finding, guarded } from '../../../checks/finding.js'
import { externalIdentity } from '../../../identity/external/external-identity.js'
import type { Command } from '../../command.js'
import { explain, faultOf } from '../../explain.js'
import type { Fault } from '../../faults/fault.js'
import { requireRoot } from '../../host/checks.js'
import { runningProcesses } from '../../state-directory/run-record.js'
import { green, print, red, table } from '../../terminal.js'
import { isInitialised, openInstance } from '../../wiring/instance.js'
import { checkAmphorae } from './amphorae.js'
import { checkApiTls } from './api-tls.js'
import { checkCompute } from './compute.js'
import { checkControllerHosts } from './controller-hosts.js'
import { checkDatabase } from './database.js'
import { environmentOf } from './environment.js'
import { checkKeyFiles, checkKeyManager } from './keys.js'
import { checkKeystone } from './keystone.js'
import { checkDisk, checkKernel, checkPackages } from './machine.js'
import { checkOvn } from './networks/ovn.js'
import { checkPhysicalNetworks } from './networks/physical-networks.js'
import { checkReach } from './networks/reach.js'
import { checkRouters } from './networks/routers.js'
import { checkService } from './service.js'
import { checkState } from './state.js'

export const command: Command = { run: doctor }

/**
 * Checks everything that Krater depends on. Prints one line per check, and how to fix each fault. Changes nothing.
 * @returns the exit status: 1 when there is a fault
 */
export async function doctor(directory: string): Promise<number> {
  requireRoot()
  const running = runningProcesses(directory)
  const instance = openInstance(directory, environmentOf(running, process.env))
  const external = externalIdentity(instance.config)
  const findings: Finding[] = []
  const check = async (about: string, work: () => Promise<Finding[]> | Finding[]) => {
    findings.push(...(await guarded(about, work, error => partsOf(error, directory))))
  }
  await check('packages', () => checkPackages(instance))
  await check('kernel', checkKernel)
  await check('compute', () => checkCompute(instance))
  await check('state', () => checkState(instance))
  if (existsSync(directory)) await check('disk', () => checkDisk(instance))
  await check('processes', () => checkService(instance, running))
  await check('api.tls', () => checkApiTls(instance, running.length > 0))
  if (external !== null) await check('keystone', () => checkKeystone(instance, external))
  if (isInitialised(directory)) {
    await check('keys', () => checkKeyFiles(instance))
    await check('database', () => checkDatabase(instance, running))
    if (!findings.some(({ about, state }) => about.startsWith('database') && state !== 'ok')) {
      await check('master key', () => checkKeyManager(instance))
      await check('controller hosts', () => checkControllerHosts(instance))
      await check('amphorae', () => checkAmphorae(instance, running))
      await check('OVN', () => checkOvn(instance))
      await check('routers', () => checkRouters(instance))
      await check('reach', () => checkReach(instance))
      await check('physical networks', () => checkPhysicalNetworks(instance))
    }
  }
  return report(findings)
}

/** The sentences of an error: what is wrong, and the way out. */
function partsOf(error: unknown, directory: string): Fault {
  const fault = faultOf(error, directory)
  if (fault !== null) return fault
  const [what = '', ...others] = explain(error, directory).text.split(/(?<=[.!?])\s+/)
  const remedy = others.join(' ')
  return { what: what.replace(/\.$/, ''), remedy: remedy === '' ? `look at ${join(directory, 'log')}` : remedy }
}

function report(findings: readonly Finding[]): number {
  const paint = { ok: green, note: (text: string) => text, fault: red }
  const lines = table(findings.map(({ about, state, text }) => [about, state.padEnd(5), text]))
  findings.forEach(({ state, remedy }, at) => {
    print((lines[at] ?? '').replace(state, paint[state](state)))
    if (remedy !== undefined) print(`    what to do: ${remedy}`)
  })
  const faults = findings.filter(({ state }) => state === 'fault').length
  print(faults === 0 ? '\nNo faults found.' : `\n${faults} ${faults === 1 ? 'fault' : 'faults'} found.`)
  return faults === 0 ? 0 : 1
}
