import { runTool } from './ip-command.js'

const inNamespace = (namespace: string | null, argv: readonly [string, ...string[]]): [string, ...string[]] =>
  namespace === null ? [...argv] : ['nsenter', `--net=/run/netns/${namespace}`, ...argv]

/**
 * Runs nftables commands in one transaction, in a named network namespace or, with null, the host's.
 * @throws IpCommandError with nft's error output, or after 10 s
 */
export async function nft(namespace: string | null, commands: string): Promise<void> {
  await runTool(inNamespace(namespace, ['nft', '-f', '-']), commands)
}

/**
 * The names of a family's tables in a named network namespace.
 * @throws IpCommandError, which proves nothing about the tables
 */
export async function nftTables(namespace: string, family: string): Promise<string[]> {
  const text = await runTool(inNamespace(namespace, ['nft', 'list', 'tables', family]), '')
  return [...text.matchAll(/^table \S+ (\S+)$/gm)].map(([, name]) => name!)
}

/**
 * A table as nft prints it, in a text as of `stateOf`.
 * @param table family and name
 * @returns null if there is none
 */
export async function nftTable(namespace: string, table: string): Promise<string | null> {
  const answer = await nftJson(namespace, ['table', ...table.split(' ')])
  return answer === null ? null : stateOf(answer)
}

/**
 * What nftJson told, without what traffic and repeated commands change: elements that hold a state, handles. Two equal
 * texts mean that the table does the same. Pure.
 */
export const stateOf = (answer: unknown): string => JSON.stringify(answer, withoutState)

/** What `nft -j list` prints; null if there is no such thing. @param words what to list */
export async function nftJson(namespace: string, words: readonly string[]): Promise<unknown> {
  const text = await runTool(inNamespace(namespace, ['nft', '-j', 'list', ...words]), '').catch(() => null)
  return text === null ? null : JSON.parse(text)
}

function withoutState(key: string, value: unknown): unknown {
  if (key === 'handle') return undefined
  if (key !== 'elem' || !Array.isArray(value)) return value
  const lasting: unknown[] = value.filter(element => typeof element !== 'object' || !('elem' in element))
  return lasting.length === 0 ? undefined : lasting.map(element => JSON.stringify(element)).sort()
}
