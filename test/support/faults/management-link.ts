import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/**
 * The management network of an installation, which can be cut between the controller and all amphorae, or at the port of some.
 * @param instance its instance id @param directory its state directory
 */
export function managementLink(instance: string, directory: string) {
  const fabric = `krater-${instance}`
  const set = async (links: readonly string[], state: 'up' | 'down') => {
    for (const link of links) await run('ip', ['-n', fabric, 'link', 'set', link, state], { timeout: 10_000 })
  }
  const linksOf = (amphoraIds: readonly string[] | 'all') =>
    amphoraIds === 'all'
      ? [`kr${instance}-mgmt`]
      : amphoraIds.map(id => linkOf(join(directory, 'amphorae', id, 'ports')))
  return {
    cut: (amphoraIds: readonly string[] | 'all') => set(linksOf(amphoraIds), 'down'),
    mend: (amphoraIds: readonly string[] | 'all') => set(linksOf(amphoraIds), 'up'),
  }
}

/** @param ports the directory in which a machine's ports are recorded @returns the fabric's end of its management interface */
function linkOf(ports: string): string {
  const port = readdirSync(ports).find(name => readFileSync(join(ports, name), 'utf8') === 'management')
  if (port === undefined) throw new Error(`No management port is recorded in ${ports}.`)
  return `p${port.replaceAll('-', '').slice(0, 11)}`
}
