import { readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import * as z from 'zod'
import { writePrivateFile } from '../../../process/private-file.js'
import { runTool } from '../ip-command.js'

export type Family = 'ipv4' | 'ipv6'

const SWITCHES: Readonly<Record<Family, string>> = { ipv4: 'ip_forward', ipv6: 'conf/all/forwarding' }

/**
 * What the settings of a family were before Krater turned forwarding on. All installations of a host share it, but no
 * two network namespaces. A reboot takes it away together with what it undoes; the loss of all firewall rules does not.
 */
const noteOf = (family: Family): string => {
  const namespace = readlinkSync('/proc/self/ns/net').replace(/\D/g, '')
  return `/run/krater-forwarding/${namespace}-${family}.json`
}

const pathOf = (family: Family, name: string): string => `/proc/sys/net/${family}/${name}`

/** Whether this host forwards packets of a family. */
export const forwards = async (family: Family): Promise<boolean> =>
  (await readFile(pathOf(family, SWITCHES[family]), 'utf8').catch(() => '0')).trim() === '1'

/**
 * Notes how the host is, before forwarding is turned on.
 * @param isNeeded an installation relies on forwarding already, so that a note is there, whatever became of the switch
 * @returns the interfaces between which nothing was forwarded; none if the host forwards of its own accord
 */
export async function prepareForwarding(family: Family, isNeeded: boolean): Promise<string[]> {
  if (!(await forwards(family)) && !isNeeded) {
    writePrivateFile(noteOf(family), JSON.stringify(Object.fromEntries(present(family))))
  }
  const closed = Object.entries(readNote(family) ?? {}).filter(([, value]) => value === '0')
  const names = closed.flatMap(([path]) => /^conf\/(.+)\/forwarding$/.exec(path)?.[1] ?? [])
  return names.filter(name => !/^(all|default|lo|kr[0-9a-f]+-.*)$/.test(name))
}

/**
 * Turns forwarding on. A host that forwards IPv6 ignores the announcements of routers, and would lose its own way out:
 * interfaces that heed them still do. Call prepareForwarding first.
 */
export async function turnForwardingOn(family: Family): Promise<void> {
  if (await forwards(family)) return
  for (const [path, value] of present(family)) {
    if (path.endsWith('/accept_ra') && value === '1') write(family, path, '2')
  }
  write(family, SWITCHES[family], '1')
}

const chainSchema = z.object({
  family: z.string(),
  table: z.string(),
  type: z.string().optional(),
  hook: z.string().optional(),
})
const chainsSchema = z.object({ nftables: z.array(z.object({ chain: chainSchema }).partial()) })

/**
 * Undoes what Krater changed for forwarding, unless other software needs it that came later.
 * @param isOurs whether a table is one of Krater's
 * @returns the tables of that software
 */
export async function undoForwarding(family: Family, isOurs: (table: string) => boolean): Promise<string[]> {
  const note = readNote(family)
  if (note === null) return []
  const { nftables } = chainsSchema.parse(JSON.parse(await runTool(['nft', '-j', 'list', 'chains'], '')))
  const families = ['inet', family === 'ipv4' ? 'ip' : 'ip6']
  const others = nftables.flatMap(({ chain }) => {
    if (chain?.type !== 'nat' || chain.hook !== 'postrouting') return []
    return families.includes(chain.family) && !isOurs(chain.table) ? [`${chain.family} ${chain.table}`] : []
  })
  if (others.length === 0) {
    // The switch also sets values of single interfaces.
    write(family, SWITCHES[family], '0')
    for (const [path, value] of present(family)) {
      const before = note[path]
      if (before !== undefined && before !== value) write(family, path, before)
    }
  }
  rmSync(noteOf(family), { force: true })
  return others
}

/** The settings that forwarding changes, by path, but for the switch itself. */
function present(family: Family): [path: string, value: string][] {
  const names = family === 'ipv4' ? ['forwarding', 'accept_redirects'] : ['forwarding', 'accept_ra']
  const interfaces = readdirSync(pathOf(family, 'conf'))
  const paths = interfaces.flatMap(name => names.map(one => `conf/${name}/${one}`))
  return paths
    .filter(path => path !== 'conf/all/forwarding')
    .flatMap(path => {
      const value = read(family, path)
      return value === null ? [] : [[path, value]]
    })
}

function readNote(family: Family): Record<string, string> | null {
  try {
    return z.record(z.string(), z.string()).parse(JSON.parse(readFileSync(noteOf(family), 'utf8')))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** Null for an interface that is gone. */
function read(family: Family, path: string): string | null {
  try {
    return readFileSync(pathOf(family, path), 'utf8').trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

function write(family: Family, path: string, value: string): void {
  try {
    writeFileSync(pathOf(family, path), value)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}
