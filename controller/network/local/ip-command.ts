import { spawn } from 'node:child_process'

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
export function runTool(words: readonly [string, ...string[]], input: string): Promise<string> {
  const [program, ...args] = words
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { timeout: TIME_LIMIT_MS, killSignal: 'SIGKILL' })
    const output: Buffer[] = []
    const complaints: Buffer[] = []
    child.stdout.on('data', chunk => output.push(chunk))
    child.stderr.on('data', chunk => complaints.push(chunk))
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
    child.on('error', error => reject(new IpCommandError(`${program} could not be started: ${error.message}`)))
    child.on('close', (code, signal) => {
      if (code === 0) return resolve(Buffer.concat(output).toString())
      const reason = signal === null ? Buffer.concat(complaints).toString().trim() : `ended by ${signal}`
      reject(new IpCommandError(`${words.join(' ')}: ${reason}`))
    })
  })
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
