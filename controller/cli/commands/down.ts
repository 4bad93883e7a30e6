import { existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Option } from 'commander'
import type { Machine } from '../../compute/driver.js'
import { configurationFile } from '../../config/load.js'
import { createLog } from '../../log/log.js'
import { removeOtherRouters } from '../../network/local/routers/apply.js'
import { Uplinks } from '../../network/local/uplinks/uplinks.js'
import { OvsdbUnreachable } from '../../ovsdb/errors.js'
import { unfinishedFile } from '../../process/private-file.js'
import { endProcesses } from '../../process/process-identity.js'
import { ask } from '../ask.js'
import type { Command } from '../command.js'
import { reasonOf } from '../faults/system-fault.js'
import { removeAttachments } from '../host/attachments.js'
import { requireRoot } from '../host/checks.js'
import { stopPrivateCluster } from '../host/postgres.js'
import { OperatorError, UsageError } from '../operator-error.js'
import { foreignFolder, instanceId } from '../state-directory/instance.js'
import { runningProcesses } from '../state-directory/run-record.js'
import { print } from '../terminal.js'
import { fabricOf, hostMachines } from '../wiring/drivers.js'
import { leftOnHost, removeHostInterfaces } from '../wiring/network/host-networks.js'
import { ownOvnOf } from '../wiring/network/ovn.js'
import { leaveOvn } from '../wiring/network/standing-ovn.js'
import { strandedHosts } from '../wiring/stranded-hosts.js'

export const command: Command = {
  options: [
    new Option('--all', 'also remove everything that Krater created: amphorae, networks, database, files'),
    new Option('--yes', 'do not ask for confirmation; needed without a terminal'),
  ],
  run: async (directory, { all, yes }: { all?: boolean; yes?: boolean }) => {
    if (all) await removeEverything(directory, { confirmed: yes ?? false })
    else await down(directory)
  },
}

/**
 * Everything that Krater puts into its state directory. `instance` is removed last, so that an interrupted
 * removal can be repeated.
 */
const OURS = [
  'krater.yaml',
  'openrc',
  'admin-openrc',
  'demo-ca.pem',
  'clouds.yaml',
  'api-ca.pem',
  'api-ca-bundle.pem',
  'keys',
  'key-manager-audit-head',
  'log',
  'run',
  'ovn',
  'standing-ovn.json',
  'postgres',
  'amphorae',
  'machines',
  'images',
  'attachments',
  'host',
  'instance',
] as const

/**
 * Stops the controllers and the PostgreSQL of a state directory; amphorae keep serving. No error when nothing
 * is running.
 */
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

/** The amphorae of an instance on this host, whatever driver created them. */
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
 * Removes everything that Krater created for a state directory: processes, amphorae, attached programs, networks,
 * PostgreSQL, files. Works from any partial state; safe to repeat.
 * @param confirmed does not ask
 * @throws UsageError without a terminal to ask on
 */
export async function removeEverything(directory: string, { confirmed }: { confirmed: boolean }): Promise<void> {
  requireRoot()
  const id = instanceId(directory)
  // Without an id the directory was never Krater's: never remove `log` and `run` of /var, for example.
  if (!OURS.some(name => existsSync(join(directory, name))) || (id === null && foreignFolder(directory) !== null)) {
    print(`${directory} holds no Krater instance.`)
    return
  }
  const stranded = strandedText(await strandedHosts(directory))
  if (!confirmed) await confirm(directory, stranded)
  else if (stranded !== '') print(stranded)
  const stopped = await stopControllers(directory)
  if (stopped.length > 0) print(`Stopped: ${stopped.join(', ')}.`)
  if (id !== null) await removeFromKernel(directory, id)
  const ours: readonly string[] = id === null ? ['log', 'run'] : OURS
  const unfinished = readdirSync(directory).filter(name => ours.includes(unfinishedFile(name) ?? ''))
  for (const name of [...unfinished, ...ours]) rmSync(join(directory, name), { recursive: true, force: true })
  print(removeDirectory(directory))
}

/** Removes the state directory unless it holds other files or cannot be removed. @returns what became of it */
function removeDirectory(directory: string): string {
  const others = readdirSync(directory)
  if (others.length > 0) {
    return `Removed everything that Krater created. ${directory} still holds other files: ${others.join(', ')}.`
  }
  try {
    rmdirSync(directory)
    return `Removed everything, including ${directory}.`
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'EBUSY' ? 'it is a mount point' : reasonOf(code)
    return `Removed everything that Krater created. The empty directory ${directory} stays: ${why}.`
  }
}

async function removeFromKernel(directory: string, id: string): Promise<void> {
  const amphorae = await amphoraeOn(directory)
  for (const { remove } of amphorae) await remove()
  if (amphorae.length > 0) print(`Removed ${amphorae.length} ${amphorae.length === 1 ? 'amphora' : 'amphorae'}.`)
  await removeAttachments(directory)
  const fabric = fabricOf(directory)
  await removeOtherRouters(fabric, [])
  if (existsSync(`/run/netns/${fabric.namespace}`) || (await leftOnHost(id))) {
    await new Uplinks(fabric).remove()
    const others = await removeHostInterfaces(id)
    if (others.length > 0) {
      print(`Packet forwarding stays on: other software needs it, which made the firewall tables ${others.join(', ')}.`)
    }
  }
  await ownOvnOf(directory).stop()
  await fabric.remove().catch((error: unknown) => {
    if (!(error instanceof OvsdbUnreachable)) throw error
    print(
      `Interfaces of this installation stay in the switch's database. ${error.message} To see them there: \`ovs-vsctl find interface external_ids:krater-instance=${id}\`; \`ovs-vsctl del-port NAME\` removes one.`,
    )
  })
  const left = await leaveOvn(directory, id)
  if (left !== null) print(left)
}

/** @param names null if nobody could tell */
function strandedText(names: readonly string[] | null): string {
  if (names === null) {
    return 'The database does not answer, so Krater cannot say whether it has enrolled hosts, which nobody can retire afterwards. To see them: `krater up --detach && krater amphora hosts`.'
  }
  return names.length === 0
    ? ''
    : `Nobody can retire these enrolled hosts afterwards: ${names.join(', ')}. \`krater amphora retire\` does it before; docs/enrolled-hosts.md says how to undo an enrolment by hand.`
}

/** @param warning printed before the question; may be empty */
async function confirm(directory: string, warning: string): Promise<void> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) {
    throw new UsageError(
      `This removes every load balancer, all data and all keys in ${directory}, and there is no terminal to ask for confirmation. To confirm, add --yes. Nothing was removed.${warning === '' ? '' : ` ${warning}`}`,
    )
  }
  if (warning !== '') print(warning)
  const question = `This removes every load balancer, all data and all keys in ${directory} (${configurationFile(directory)}). Type yes to continue: `
  const refused = 'Nothing was removed. To remove everything, run the command again and type yes.'
  const answer = await ask(question).catch((error: unknown) => {
    throw error instanceof OperatorError ? new OperatorError(refused, error.exitStatus) : error
  })
  if (answer !== 'yes') throw new OperatorError(refused)
}
