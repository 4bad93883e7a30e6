import { randomUUID } from 'node:crypto'
import { networkInterfaces } from 'node:os'
import { setTimeout as wait } from 'node:timers/promises'
import { Argument, InvalidArgumentError, Option } from 'commander'
import { installationId } from '../../../../compute/amphora-identity.js'
import { LOCAL_ZONE } from '../../../../compute/driver.js'
import { type HostFacts, parseFacts } from '../../../../compute/enrolled/enrolment/facts.js'
import { factsInput, install, runScript, undo } from '../../../../compute/enrolled/enrolment/install.js'
import {
  type AskedInterface,
  type GivenInterface,
  isTried,
  matchInterfaces,
  refusals,
} from '../../../../compute/enrolled/enrolment/judge.js'
import { judgeOwner } from '../../../../compute/enrolled/enrolment/owner.js'
import {
  fingerprintOf,
  HostSession,
  readHostKey,
  type SshDestination,
} from '../../../../compute/enrolled/enrolment/session.js'
import {
  beginEnrolment,
  type EnrolledHost,
  enrolledHosts,
  forgetTold,
  hostById,
  leaveState,
  type NewHost,
} from '../../../../compute/enrolled/hosts.js'
import { freeBoot } from '../../../../compute/enrolled/wipe.js'
import type { Database } from '../../../../database/connection.js'
import { hostAddresses } from '../../../../hosts/read-hosts.js'
import { ask } from '../../../ask.js'
import type { Command } from '../../../command.js'
import { OperatorError } from '../../../operator-error.js'
import { changeSettings } from '../../../state-directory/change-settings.js'
import { type Keys, keyFiles, loadKeys } from '../../../state-directory/keys.js'
import { runningProcesses } from '../../../state-directory/run-record.js'
import { print, visible } from '../../../terminal.js'
import { agentBundle, forwardedPorts, requireInstanceId } from '../../../wiring/drivers.js'
import type { Instance } from '../../../wiring/instance.js'
import { restart } from '../../up/restart.js'
import { withHostAgents } from '../agents.js'
import { withRows } from '../with-rows.js'
import { identityOf, knownHostKeys, parseDestination, textOf, withAddress } from './destination.js'
import { knownNetworks } from './networks.js'

type Given = {
  host: SshDestination
  name?: string
  zone: string
  physicalHost?: string
  interface?: AskedInterface[]
  identity?: string
  fingerprint?: string
  yes?: true
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/
const FACTS_MS = 60_000
const BEAT_MS = 60_000
const POLL_MS = 500

export const command: Command = {
  arguments: [
    new Argument('<host>', 'USER@HOST or USER@HOST:PORT; USER is root or may use sudo without a password').argParser(
      parseDestination,
    ),
  ],
  options: [
    new Option('--name <name>', 'what to call it; its own name by default').argParser(parseName),
    new Option('--zone <zone>', 'compute zone that it belongs to').argParser(parseName).default(LOCAL_ZONE),
    new Option(
      '--physical-host <name>',
      'what it runs on: the two amphorae of a pair avoid hosts with the same one; its own name by default',
    ).argParser(parseName),
    new Option(
      '--interface <network=mac>',
      'interface that leads to a network; several may be given. By default, interfaces with an address in a subnet of a network',
    ).argParser(parseInterface),
    new Option('--identity <file>', 'private key to log in with; by default those of your SSH client'),
    new Option('--fingerprint <fingerprint>', 'host key that it must show, as SHA256:...').argParser(parseFingerprint),
    new Option('--yes', 'ask nothing'),
  ],
  run: (directory, given) => withRows(directory, (instance, database) => enroll(instance, database, given as Given)),
}

async function enroll(instance: Instance, database: Database, given: Given): Promise<void> {
  const destination = await withAddress(given.host)
  const hosts = await enrolledHosts(database)
  const known = hosts.find(({ address, port }) => address === destination.host && port === destination.port)
  const hostKey = await expectedHostKey(given, destination, known)
  if (known !== undefined && known.state !== 'enrolling') {
    throw new OperatorError(`${known.name} is enrolled already, and ${known.state}. Nothing was changed there.`)
  }
  const session = await HostSession.open(destination, hostKey, identityOf(given.identity))
  try {
    await session.becomeRoot(destination.user)
    const ends = await session.ends()
    const input = factsInput(ends.controller, forwardedPorts(instance.config))
    const facts = parseFacts((await runScript(session, 'facts.sh', input, FACTS_MS)).join('\n'))
    const keys = await loadKeys(keyFiles(instance.config, instance.directory))
    const installation = installationId(keys.amphoraMaster)
    const owner = judgeOwner(facts.owner, {
      installations: [installation, requireInstanceId(instance.directory)],
      ...{ hosts, hostKey, atAddress: known },
    })
    const { id, forgotten, interfaces } = await judge(instance, facts, given, owner)
    const host: NewHost = {
      id: id ?? randomUUID(),
      name: given.name ?? facts.hostname,
      login: destination.user,
      address: destination.host,
      port: destination.port,
      hostKey,
      zone: given.zone,
      physicalHost: given.physicalHost ?? given.name ?? facts.hostname,
      controllerAddress: instance.config.host.address ?? ends.controller,
      interfaces,
    }
    requireOwnAddress(host)
    await agree(given, facts, host)
    await requireBegun(database, host)
    await listenAt(instance, host.controllerAddress)
    if (forgotten !== null) await undoFormer(session, forgotten)
    await installOn(instance, session, host, { keys, installation }, database)
    await verify(instance, database, host.id)
  } finally {
    session.close()
  }
}

/** The key that the host shows, if it is the one that it should show. @throws OperatorError */
async function expectedHostKey(
  { host, fingerprint, yes }: Given,
  destination: SshDestination,
  known: EnrolledHost | undefined,
): Promise<Buffer> {
  const hostKey = await readHostKey(destination)
  const shown = fingerprintOf(hostKey)
  const unchanged = 'Nothing was changed there.'
  if (fingerprint !== undefined && fingerprint !== shown) {
    throw new OperatorError(`${textOf(host)} shows the host key ${shown}, not ${fingerprint}. ${unchanged}`)
  }
  if (known !== undefined && !known.hostKey.equals(hostKey)) {
    throw new OperatorError(
      `${textOf(host)} shows the host key ${shown}, but showed ${fingerprintOf(known.hostKey)} before. If its key was really changed, retire it first: krater amphora retire ${known.name} --forget. ${unchanged}`,
    )
  }
  const trusted = await knownHostKeys(host)
  if (fingerprint === undefined && trusted.length > 0 && !trusted.some(key => key.equals(hostKey))) {
    throw new OperatorError(
      `${textOf(host)} shows the host key ${shown}, but your known_hosts file has ${trusted.map(fingerprintOf).join(', ')}. ${unchanged}`,
    )
  }
  print(`${textOf(host)} shows the host key ${shown} (ED25519).`)
  const isExpected = fingerprint !== undefined || known !== undefined || trusted.length > 0
  if (!isExpected && yes === undefined)
    await requireYes(
      'Is that its key? On the host, `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` shows it. [y/N] ',
    )
  return hostKey
}

/**
 * @returns whose it is, and its interfaces that lead to networks
 * @throws OperatorError with everything that speaks against the host
 */
async function judge(
  instance: Instance,
  facts: HostFacts,
  given: Given,
  owner: ReturnType<typeof judgeOwner>,
): Promise<{ id: string | null; forgotten: string | null; interfaces: GivenInterface[] }> {
  const isOurs = facts.owner !== null && 'id' in owner
  const problems = [
    ...('problem' in owner ? [owner.problem] : []),
    ...refusals(facts, { isOurs, processor: process.arch, now: Date.now() / 1000 }),
  ]
  const matched =
    problems.length > 0
      ? { problems: [] }
      : matchInterfaces(facts, await knownNetworks(instance), given.interface ?? [])
  if ('given' in matched && 'id' in owner) return { ...owner, interfaces: matched.given }
  const all = [...problems, ...('problems' in matched ? matched.problems : [])]
  throw new OperatorError(
    [`${textOf(given.host)} cannot be enrolled. Nothing was changed there.`, ...all.map(text => `- ${text}`)].join(
      '\n',
    ),
  )
}

/** Heartbeats go to this address, so it must be one of this machine. @throws OperatorError */
function requireOwnAddress({ name, controllerAddress }: NewHost): void {
  const own = Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ address }) => address))
  if (own.includes(controllerAddress)) return
  throw new OperatorError(
    `${name} would send its heartbeats to ${controllerAddress}, which is no address of this machine. Something between them may translate addresses; set host.address to one at which ${name} reaches this machine directly. Nothing was changed there.`,
  )
}

async function agree(given: Given, facts: HostFacts, host: NewHost): Promise<void> {
  const untried = isTried(facts) ? '' : ' Krater’s own tests do not cover this system.'
  print(`${host.name} runs ${facts.system} ${facts.version} on ${facts.architecture}.${untried}`)
  for (const { name, mac, networkName } of host.interfaces)
    print(`Its interface ${name} (${mac}) leads to the network ${networkName}.`)
  print(
    'Enrolling it installs HAProxy, keepalived and what they need, an account for the controllers, an agent and its service. These interfaces then belong to its amphorae alone, without their present addresses. `krater amphora retire` undoes all of it.',
  )
  if (given.yes === undefined) await requireYes('Enroll it? [y/N] ')
}

async function requireYes(question: string): Promise<void> {
  if (!process.stdin.isTTY)
    throw new OperatorError(`Nobody is there to answer "${question.trim()}". Add --yes. Nothing was changed there.`)
  if (!['y', 'yes'].includes(await ask(question))) throw new OperatorError('Nothing was changed there.')
}

async function requireBegun(database: Database, host: NewHost): Promise<void> {
  const others = await enrolledHosts(database)
  const taken = others.find(
    other => other.id !== host.id && (other.name === host.name || other.hostKey.equals(host.hostKey)),
  )
  if (taken?.name === host.name)
    throw new OperatorError(
      `There is another host ${host.name}. Choose another name with --name. Nothing was changed there.`,
    )
  if (taken !== undefined)
    throw new OperatorError(
      `${taken.name} (${taken.address}) has the same host key. Is it the same machine? Nothing was changed there.`,
    )
  if (!(await beginEnrolment(database, host))) throw new OperatorError(`${host.name} is enrolled already.`)
}

/** Has this controller listen where hosts reach it. */
async function listenAt({ directory, config }: Instance, address: string): Promise<void> {
  if (config.host.address !== undefined) return
  changeSettings(directory, [`host.address=${address}`])
  print(`The health manager and the key channel will listen on ${address} too (host.address).`)
  await restart(directory)
}

/** Begins anew on a host that was forgotten, or whose row was in no backup: it may even carry an amphora. */
async function undoFormer(session: HostSession, hostId: string): Promise<void> {
  print('Undoing what a former enrolment changed there')
  for (const kept of await undo(session, hostId)) print(visible(kept))
}

async function installOn(
  { config }: Instance,
  session: HostSession,
  host: NewHost,
  { keys, installation }: { keys: Keys; installation: string },
  database: Database,
): Promise<void> {
  const { port, beat_interval } = config.health_manager
  const turn = (await hostById(database, host.id))?.turn ?? 0
  const changes = await install(
    session,
    {
      owner: `${installation} ${host.id}`,
      user: host.login,
      controllerKey: keys.controllerSsh.publicLine,
      operatorKey: keys.operatorSsh.publicLine,
      boot: freeBoot(
        { masterKey: keys.amphoraMaster, heartbeatPort: port, beatIntervalSeconds: beat_interval },
        { id: host.id, turn },
      ),
      interfaces: host.interfaces,
      forwarding: {
        controllers: [...new Set([host.controllerAddress, ...(await hostAddresses(database))])],
        ...forwardedPorts(config),
      },
      node: process.execPath,
      agentBundle,
    },
    print,
  )
  await leaveState(database, { id: host.id, turn, state: 'enrolling' }, { state: 'enrolling', changes })
  await forgetTold(database, host.id)
}

/** Reaches the agent as the controllers do, and waits for a heartbeat. @throws OperatorError */
async function verify(instance: Instance, database: Database, id: string): Promise<void> {
  const since = performance.now()
  let why = ''
  do {
    const host = await hostById(database, id)
    if (host === null) throw new OperatorError('The host was retired meanwhile.')
    const turn = await withHostAgents(instance, agents => agents.turn(host, 10_000)).catch((error: Error) => error)
    if (turn instanceof Error) why = turn.message
    else if (turn !== host.turn) why = `Its agent is at turn ${turn} and not yet at ${host.turn}.`
    const reached = turn === host.turn
    // An earlier run may have got one before a firewall was closed.
    const isHeard = host.silentSeconds !== null && host.silentSeconds * 1000 < performance.now() - since
    if (reached && isHeard) {
      await leaveState(database, host, { state: 'free' })
      print(`${host.name} is enrolled: its agent answers and its heartbeats arrive.`)
      return
    }
    if (reached) why = whySilent(instance, host)
    await wait(POLL_MS)
  } while (performance.now() - since < BEAT_MS)
  throw new OperatorError(
    `The host is installed, but not enrolled yet: ${visible(why)}\nThe same command goes on once that is solved; \`krater amphora retire\` undoes everything.`,
  )
}

function whySilent({ directory, config }: Instance, { controllerAddress }: EnrolledHost): string {
  const silent = `No heartbeat has arrived at ${controllerAddress}, UDP port ${config.health_manager.port}.`
  return runningProcesses(directory).some(({ name }) => name === 'health-manager')
    ? `${silent} A firewall between them, or of this machine, may drop it.`
    : `${silent} No health manager runs on this machine: \`krater up\` starts Krater.`
}

function parseName(text: string): string {
  if (NAME.test(text)) return text
  throw new InvalidArgumentError('It must have letters, digits, dots, hyphens and underscores only.')
}

function parseFingerprint(text: string): string {
  if (/^SHA256:[A-Za-z0-9+/]{43}$/.test(text)) return text
  throw new InvalidArgumentError('It must be SHA256: and 43 characters, as `ssh-keygen -lf` prints it.')
}

function parseInterface(text: string, given: AskedInterface[] = []): AskedInterface[] {
  const [, network, mac] = /^(.+)=([0-9a-f]{2}(?::[0-9a-f]{2}){5})$/i.exec(text) ?? []
  if (network === undefined || mac === undefined) {
    throw new InvalidArgumentError('It must be NETWORK=MAC, such as lan=52:54:00:12:34:56.')
  }
  return [...given, { network, mac: mac.toLowerCase() }]
}
