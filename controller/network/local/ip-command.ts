import { runInThread } from './tool-thread.js'

const TIME_LIMIT_MS = 10_000

export class IpCommandError extends Error {}

/**
 * Runs iproute2's `ip` without a shell.
 * @param input lines for `-batch -`
 * @returns its standard output
 * @throws IpCommandError with the tool's own words; also after 10 s
 */
export const ip = (args: readonly string[], input = ''): Promise<string> => runTool(['ip', ...args], input)

/** The same for another program of the kernel's network. @param words the program and its arguments */
export async function runTool(words: readonly [string, ...string[]], input: string): Promise<string> {
  const result = await runInThread({ words, input, limitMs: TIME_LIMIT_MS }).catch(
    ({ message }: Error) => ({ kind: 'failed', reason: message }) as const,
  )
  if (result.kind === 'failed') throw new IpCommandError(`${words[0]} could not be started: ${result.reason}`)
  const { code, signal, output, complaints } = result
  if (code === 0) return output
  throw new IpCommandError(`${words.join(' ')}: ${signal === null ? complaints.trim() : `ended by ${signal}`}`)
}

/** One network interface as `ip -json link` tells of it. */
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

const inside = (namespace: string | null): string[] => (namespace === null ? [] : ['-n', namespace])

/** All interfaces of a network namespace; null is the host's. */
export async function links(namespace: string | null): Promise<Link[]> {
  return JSON.parse(await ip([...inside(namespace), '-json', 'link', 'show'])) as Link[]
}

/** One interface by its name; null when there is none, or when the namespace does not exist. */
export async function linkNamed(namespace: string | null, name: string): Promise<Link | null> {
  const text = await ip([...inside(namespace), '-json', 'link', 'show', 'dev', name]).catch(() => '[]')
  return (JSON.parse(text) as Link[])[0] ?? null
}

/** The addresses with prefix lengths that somebody gave to an interface of the host; those that IPv6 makes by itself are left out. */
export async function addressesOf(name: string): Promise<string[]> {
  type Row = { addr_info: { local: string; prefixlen: number; scope: string }[] }
  const rows = JSON.parse(await ip(['-json', 'address', 'show', 'dev', name])) as Row[]
  return rows
    .flatMap(row => row.addr_info)
    .filter(address => address.scope !== 'link')
    .map(address => `${address.local}/${address.prefixlen}`)
}

/** Runs many commands in one process. Each is tried, whatever became of those before: the caller looks at the outcome. */
export async function ipBatch(namespace: string | null, lines: readonly string[]): Promise<IpCommandError | null> {
  const refused = lines.find(line => !/^[\w .,:/-]+$/.test(line))
  if (refused !== undefined) throw new IpCommandError(`Not a line for ip -batch: ${JSON.stringify(refused)}`)
  try {
    await ip([...inside(namespace), '-force', '-batch', '-'], `${lines.join('\n')}\n`)
    return null
  } catch (error) {
    if (error instanceof IpCommandError) return error
    throw error
  }
}
