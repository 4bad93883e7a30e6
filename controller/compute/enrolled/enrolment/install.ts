import { createHash } from 'node:crypto'
import { createReadStream, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Boot } from '../../../../amphora-agent/protocol/boot.js'
import { type Forwarding, forwarderLines } from '../../../../amphora-agent/protocol/forwarding.js'
import { sourceFolder } from '../../source-folder.js'
import { AMPHORA_END, HOST_END, LINK } from '../link.js'
import { EnrolmentError } from './enrolment-error.js'
import type { HostSession, Upload } from './session.js'

/** Debian's packages that a host needs; those that it lacks are installed. */
const PACKAGES = ['haproxy', 'keepalived', 'nftables', 'conntrack', 'iputils-ping', 'procps']

const BEGIN_MS = 60_000
const UPLOAD_MS = 600_000
/** Downloading and unpacking packages on a slow machine. */
const INSTALL_MS = 1_500_000
const UNDO_MS = 300_000

/** What a host gets at its enrolment. */
export type Installation = {
  /** `INSTALLATION HOST`: whose it is. */
  owner: string
  /** The account that the operator logs in with. */
  user: string
  /** Lines of authorized_keys. */
  controllerKey: string
  operatorKey: string
  boot: Boot
  interfaces: readonly { mac: string; name: string }[]
  /** Where heartbeats go, and where TLS material comes from. */
  forwarding: Forwarding
  /** Local files. */
  node: string
  agentBundle: string
}

type Place = { host: string; port: number }

/**
 * Installs what a host needs to carry amphorae. Run again after a failure or a kill, it goes on.
 * @param say called with a sentence for each part
 * @returns what was changed on the host since its enrolment began
 * @throws EnrolmentError
 */
export async function install(
  session: HostSession,
  installation: Installation,
  say: (text: string) => void,
): Promise<string[]> {
  const { owner, node, agentBundle } = installation
  const sums: Record<Upload, string> = { node: await sha256(node), 'agent.mjs': await sha256(agentBundle) }
  const there = await runScript(session, 'install.sh', dataLines({ step: 'begin', owner }), BEGIN_MS)
  for (const [name, path] of Object.entries({ node, 'agent.mjs': agentBundle }) as [Upload, string][]) {
    if (there.includes(`${sums[name]}  ${name}`)) continue
    say(name === 'node' ? 'Copying Node.js' : 'Copying the agent')
    await session.upload(path, name, UPLOAD_MS)
  }
  say('Installing packages, accounts and the service')
  return checkedChanges(await runScript(session, 'install.sh', dataLines(installData(installation, sums)), INSTALL_MS))
}

const MAX_CHANGES = 1_000
const CHANGE = /^[a-z-]+( [^\p{C}]{1,1000})?$/u

/** Lines that install.sh writes down; the host may say anything. Pure. @throws EnrolmentError */
export function checkedChanges(lines: readonly string[]): string[] {
  const strange = lines.length > MAX_CHANGES ? 'too many lines' : lines.find(line => !CHANGE.test(line))
  if (strange === undefined) return [...lines]
  throw new EnrolmentError(`The host does not say what was changed there, but ${JSON.stringify(strange.slice(0, 60))}.`)
}

/**
 * Undoes what an enrolment has changed on a host, however far it came. May be repeated.
 * @returns what was kept, and why
 * @throws EnrolmentError
 */
export const undo = (session: HostSession, hostId: string): Promise<string[]> =>
  runScript(session, 'undo.sh', `${hostId}\n`, UNDO_MS)

/** Text for the standard input of install.sh, by name. Pure but for the files of the sources. */
function installData(
  { owner, user, controllerKey, operatorKey, boot, interfaces, forwarding }: Installation,
  sums: Readonly<Record<Upload, string>>,
): Record<string, string> {
  const amphora = sourceFolder('images/amphora')
  const host = sourceFolder('controller/compute/enrolled/host')
  const file = (folder: string, name: string) => readFileSync(join(folder, name), 'utf8')
  return {
    step: 'install',
    owner,
    user,
    sums: Object.entries(sums)
      .map(([name, sum]) => `${sum}  ${name}\n`)
      .join(''),
    packages: PACKAGES.join('\n'),
    'init.sh': file(amphora, 'init.sh'),
    'agent.sh': file(amphora, 'agent.sh'),
    'management.sh': file(amphora, 'management.sh'),
    'sysctl.conf': file(amphora, 'etc/sysctl.conf'),
    'host.sh': file(host, 'host.sh'),
    'forward.pl': file(host, 'forward.pl'),
    'sshd.conf': file(host, 'sshd.conf'),
    unit: file(host, 'krater-amphora.service'),
    'management-address': `${AMPHORA_END}\n`,
    interfaces: interfaces.map(({ mac, name }) => `${mac} ${name}\n`).join(''),
    controllers: forwarderLines(forwarding),
    boot: JSON.stringify(boot),
    'controller-key': controllerKey,
    'operator-key': operatorKey,
  }
}

/** What facts.sh reads. @param client the controller's address, as the host sees it */
export const factsInput = (client: string, { heartbeats, keyChannel }: Omit<Forwarding, 'controllers'>) =>
  `${client}\n${LINK}\nudp ${heartbeats}\ntcp ${keyChannel}\n`

/** Where the amphora of a host sends heartbeats, and reads TLS material: the forwarder of its host. */
export const throughForwarder = (port: number): Place => ({ host: HOST_END, port })

const dataLines = (data: Readonly<Record<string, string>>): string =>
  `${Object.entries(data)
    .map(([name, text]) => `${name} ${Buffer.from(text).toString('base64')}\n`)
    .join('')}end\n`

/** @returns the lines that it prints @throws EnrolmentError with its complaint */
export async function runScript(
  session: HostSession,
  name: 'facts.sh' | 'install.sh' | 'undo.sh',
  input: string,
  timeoutMs: number,
): Promise<string[]> {
  const script = readFileSync(join(sourceFolder('controller/compute/enrolled/host'), name), 'utf8')
  const { status, stdout, stderr } = await session.runScript(script, input, timeoutMs)
  if (status !== 0) {
    const words = stderr.trim().split('\n').slice(-5).join('\n')
    throw new EnrolmentError(`The host says (${name}, exit status ${status}):\n${words}`)
  }
  return stdout.split('\n').filter(Boolean)
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of createReadStream(path)) hash.update(piece)
  return hash.digest('hex')
}
