import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { Option } from 'commander'
import type { Machine } from '../../compute/driver.js'
import { configurationFile } from '../../config/load.js'
import { createLog } from '../../log/log.js'
import { endProcesses } from '../../process/process-identity.js'
import type { Command } from '../command.js'
import { requireRoot } from '../host/checks.js'
import { stopPrivateCluster } from '../host/postgres.js'
import { OperatorError } from '../operator-error.js'
import { foreignFolder, instanceId } from '../state-directory/instance.js'
import { runningProcesses } from '../state-directory/run-record.js'
import { print } from '../terminal.js'
import { fabricOf, hostMachines } from '../wiring/drivers.js'
import { forgetHostInterfaces } from '../wiring/host-networks.js'
import { removeWebServers } from './demo/web-servers.js'

export const command: Command = {
  options: [
    new Option('--all', 'remove everything that was made: amphorae, networks, database, files'),
    new Option('--yes', 'do not ask'),
  ],
  run: async (directory, { all, yes }: { all?: boolean; yes?: boolean }) => {
    if (all) await removeEverything(directory, { confirmed: yes ?? false })
    else await down(directory)
  },
}

/** Everything that Krater puts into its state directory. The id goes last, so that an interrupted removal can be repeated. */
const OURS = [
  'krater.yaml',
  'openrc',
  'admin-openrc',
  'clouds.yaml',
  'keys',
  'key-manager-audit-head',
  'log',
  'run',
  'postgres',
  'amphorae',
  'instance',
] as const

/** Stops the controllers of a state directory and its PostgreSQL; amphorae keep serving. Not an error when nothing runs. */
export async function down(directory: string): Promise<void> {
  requireRoot()
  const stopped = await stopControllers(directory)
  if (stopped.length === 0) {
    print(`Nothing was running on ${directory}.`)
    return
  }
  print(`Stopped: ${stopped.join(', ')}.`)
  const amphorae = instanceId(directory) === null ? [] : await amphoraeOn(directory)
  const serving = amphorae.filter(({ state }) => state === 'running').length
  if (serving > 0) {
    print(
      `${serving} ${serving === 1 ? 'amphora keeps' : 'amphorae keep'} serving. \`krater down --all\` removes everything.`,
    )
  }
}

/** The amphorae of an installation on this host, whatever driver made them. */
async function amphoraeOn(directory: string): Promise<(Machine & { remove: () => Promise<void> })[]> {
  const drivers = await hostMachines(directory, createLog('down', 'warn'))
  const listed = drivers.map(async driver => {
    const machines = await driver.list()
    return machines.map(machine => ({ ...machine, remove: () => driver.delete(machine.amphoraId) }))
  })
  return (await Promise.all(listed)).flat()
}

async function stopControllers(directory: string): Promise<string[]> {
  const running = runningProcesses(directory)
  const ups = running.filter(({ name }) => name === 'up')
  // `up` stops its children and its PostgreSQL itself, in order.
  await endProcesses(
    ups.map(({ identity }) => identity),
    { graceMs: 40_000 },
  )
  await endProcesses(
    runningProcesses(directory).map(({ identity }) => identity),
    { graceMs: 10_000 },
  )
  const postgres = await stopPrivateCluster(directory)
  return [...running.map(({ name, identity }) => `${name} (pid ${identity.pid})`), ...(postgres ? ['PostgreSQL'] : [])]
}

/**
 * Removes everything that was made for a state directory: processes, amphorae, the demonstration's web servers, networks, PostgreSQL, files.
 * Works from any partial state and can be repeated.
 * @param confirmed does not ask on a terminal
 */
export async function removeEverything(directory: string, { confirmed }: { confirmed: boolean }): Promise<void> {
  requireRoot()
  const id = instanceId(directory)
  // Without an id it never belonged to Krater: `log` and `run` of /var, for example, are not ours to remove.
  if (!OURS.some(name => existsSync(join(directory, name))) || (id === null && foreignFolder(directory) !== null)) {
    print(`There is nothing of Krater's in ${directory}.`)
    return
  }
  if (!confirmed) await confirm(directory)
  const stopped = await stopControllers(directory)
  if (stopped.length > 0) print(`Stopped: ${stopped.join(', ')}.`)
  if (id !== null) await removeFromKernel(directory, id)
  for (const name of id === null ? ['log', 'run'] : OURS)
    rmSync(join(directory, name), { recursive: true, force: true })
  const others = readdirSync(directory)
  if (others.length === 0) rmdirSync(directory)
  print(
    others.length === 0
      ? `Everything is removed, ${directory} too.`
      : `Everything of Krater's is removed from ${directory}; left there, since it is not ours: ${others.join(', ')}.`,
  )
}

async function removeFromKernel(directory: string, id: string): Promise<void> {
  const amphorae = await amphoraeOn(directory)
  for (const { remove } of amphorae) await remove()
  if (amphorae.length > 0) print(`Removed ${amphorae.length} ${amphorae.length === 1 ? 'amphora' : 'amphorae'}.`)
  await removeWebServers(directory, id)
  const fabric = fabricOf(directory)
  if (existsSync(`/run/netns/${fabric.namespace}`)) await forgetHostInterfaces(id)
  await fabric.remove()
}

async function confirm(directory: string): Promise<void> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) return
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const answer = await terminal.question(
    `This removes every load balancer, its data and its keys below ${directory} (${configurationFile(directory)}). Type yes to go on: `,
  )
  terminal.close()
  if (answer.trim().toLowerCase() !== 'yes') throw new OperatorError('Nothing was removed.')
}
