import { existsSync, readdirSync, statSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { IpCommandError, ip } from './ip-command.js'

const DIRECTORY = '/run/netns'
const WAIT_MS = 500
const PAUSE_MS = 50

export const namespaceExists = (name: string): boolean => existsSync(`${DIRECTORY}/${name}`)

/** Names of network namespaces with this prefix. */
export const namespacesNamed = (prefix: string): string[] =>
  existsSync(DIRECTORY) ? readdirSync(DIRECTORY).filter(name => name.startsWith(prefix)) : []

/**
 * Creates a named network namespace unless it is there, with its loopback up. May run concurrently.
 * @throws IpCommandError if it does not come up
 */
export async function ensureNamespace(name: string): Promise<void> {
  if (namespaceExists(name) && (await answers(name))) return
  // Another process may have made the file but not yet mounted the namespace on it. If not mounted in time, it died.
  for (let waited = 0; namespaceExists(name) && waited < WAIT_MS; waited += PAUSE_MS) {
    if (await answers(name)) return
    await wait(PAUSE_MS)
  }
  if (isMounted(name)) throw new IpCommandError(`The namespace ${name} does not answer`)
  if (namespaceExists(name)) await ip(['netns', 'delete', name]).catch(() => undefined)
  const failure = await ip(['netns', 'add', name]).catch((error: unknown) => error)
  for (let waited = 0; waited < WAIT_MS; waited += PAUSE_MS) {
    if (await answers(name)) return
    await wait(PAUSE_MS)
  }
  throw failure instanceof Error ? failure : new IpCommandError(`The namespace ${name} does not answer`)
}

/** No error if there is none. @throws IpCommandError if it stays */
export async function removeNamespace(name: string): Promise<void> {
  if (!namespaceExists(name)) return
  await ip(['netns', 'delete', name]).catch((error: unknown) => {
    if (namespaceExists(name)) throw error
  })
}

/** A file without a namespace is on the directory's own file system. */
const isMounted = (name: string): boolean => {
  const file = statSync(`${DIRECTORY}/${name}`, { throwIfNoEntry: false })
  return file !== undefined && file.dev !== statSync(DIRECTORY).dev
}

const answers = (name: string): Promise<boolean> =>
  ip(['-n', name, 'link', 'set', 'lo', 'up']).then(
    () => true,
    () => false,
  )
