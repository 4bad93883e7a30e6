import { runInThread } from './tool-thread.js'

const TIMEOUT_MS = 10_000

export class IpCommandError extends Error {}

/**
 * Runs iproute2's `ip` without a shell.
 * @param input lines for `-batch -`
 * @returns its standard output
 * @throws IpCommandError with ip's error output, or after 10 s (12 s if it cannot be killed)
 */
export const ip = (args: readonly string[], input = ''): Promise<string> => runTool(['ip', ...args], input)

/** Runs another network program likewise. @param argv the program and its arguments */
export async function runTool(argv: readonly [string, ...string[]], input: string): Promise<string> {
  const result = await runInThread({ argv, input, timeoutMs: TIMEOUT_MS }).catch(
    ({ message }: Error) => ({ kind: 'failed', reason: message }) as const,
  )
  if (result.kind === 'failed') throw new IpCommandError(`${argv[0]} could not be started: ${result.reason}`)
  if (result.kind === 'stuck') throw new IpCommandError(`${argv.join(' ')}: does not end, though it was killed`)
  const { code, signal, stdout, stderr } = result
  if (code === 0) return stdout
  throw new IpCommandError(`${argv.join(' ')}: ${signal === null ? stderr.trim() : `killed by ${signal}`}`)
}

/** One network interface as `ip -json link` reports it. */
export type Link = {
  ifindex: number
  ifname: string
  flags: string[]
  mtu: number
  address: string
  master?: string
  ifalias?: string
  /** The other end of a veth: its ifindex in its own namespace. */
  link_index?: number
}

const namespaceOption = (namespace: string | null): string[] => (namespace === null ? [] : ['-n', namespace])

/** All interfaces of a network namespace; null is the host's. */
export async function links(namespace: string | null): Promise<Link[]> {
  return JSON.parse(await ip([...namespaceOption(namespace), '-json', 'link', 'show'])) as Link[]
}

/** How `ip` says that an interface or a namespace does not exist. */
const ABSENT = /does not exist|Cannot open network namespace .*No such file/

/**
 * One interface by name; null if it or the namespace does not exist.
 * @throws IpCommandError if that cannot be told
 */
export async function linkNamed(namespace: string | null, name: string): Promise<Link | null> {
  const text = await ip([...namespaceOption(namespace), '-json', 'link', 'show', 'dev', name]).catch(
    (error: unknown) => {
      if (error instanceof IpCommandError && ABSENT.test(error.message)) return '[]'
      throw error
    },
  )
  return (JSON.parse(text) as Link[])[0] ?? null
}

/** The addresses of a host interface, with prefix lengths; without link-local ones, which IPv6 assigns by itself. */
export async function interfaceAddresses(name: string): Promise<string[]> {
  type Row = { addr_info: { local: string; prefixlen: number; scope: string }[] }
  const rows = JSON.parse(await ip(['-json', 'address', 'show', 'dev', name])) as Row[]
  return rows
    .flatMap(row => row.addr_info)
    .filter(address => address.scope !== 'link')
    .map(address => `${address.local}/${address.prefixlen}`)
}

/** Runs many commands in one process. A failed command does not stop those after it: the caller checks the result. */
export async function ipBatch(namespace: string | null, lines: readonly string[]): Promise<IpCommandError | null> {
  const refused = lines.find(line => !/^[\w .,:/-]+$/.test(line))
  if (refused !== undefined) throw new IpCommandError(`Invalid line for ip -batch: ${JSON.stringify(refused)}`)
  try {
    await ip([...namespaceOption(namespace), '-force', '-batch', '-'], `${lines.join('\n')}\n`)
    return null
  } catch (error) {
    if (error instanceof IpCommandError) return error
    throw error
  }
}
