import { existsSync } from 'node:fs'
import { type Finding, guarded, note } from '../../../checks/finding.js'
import { externalIdentity } from '../../../identity/external/external-identity.js'
import type { Command } from '../../command.js'
import { requireRoot } from '../../host/checks.js'
import { runningProcesses } from '../../state-directory/run-record.js'
import { green, print, red, table } from '../../terminal.js'
import { computeDriverOf } from '../../wiring/drivers.js'
import { isInitialised, openInstance } from '../../wiring/instance.js'
import { checkAmphorae } from './amphorae.js'
import { checkDatabase } from './database.js'
import { checkKeystone } from './keystone.js'
import { checkDisk, checkKernel, checkPackages } from './machine.js'
import { checkService } from './service.js'

export const command: Command = { run: doctor }

/**
 * Checks everything that Krater depends on. Prints one line per check, and how to fix each fault. Changes nothing.
 * @returns the exit status: 1 when there is a fault
 */
export async function doctor(directory: string): Promise<number> {
  requireRoot()
  const instance = openInstance(directory)
  const external = externalIdentity(instance.config)
  const running = runningProcesses(directory)
  const findings = [
    ...(await guarded('packages', () => checkPackages(instance))),
    ...(await guarded('kernel', checkKernel)),
    ...(await guarded('limits', () => computeDriverOf(instance).check(instance.config.compute))),
    ...(existsSync(directory) ? await guarded('disk', () => checkDisk(instance)) : []),
    ...(await guarded('processes', () => checkService(instance, running))),
    ...(external === null ? [] : await guarded('keystone', () => checkKeystone(instance, external))),
  ]
  if (isInitialised(directory)) {
    findings.push(...(await guarded('database', () => checkDatabase(instance))))
    if (!findings.some(({ about, state }) => about.startsWith('database') && state !== 'ok')) {
      findings.push(...(await guarded('amphorae', () => checkAmphorae(instance, running))))
    }
  } else {
    findings.push(note('state', `${directory} is not set up yet: \`krater up\` does that`))
  }
  return report(findings)
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
