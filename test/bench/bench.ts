import { readFileSync, writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { join } from 'node:path'
import { benchApi } from './api.js'
import { benchCertificateToHandshake } from './certificate-to-handshake.js'
import { benchChangeToTraffic } from './change-to-traffic.js'
import { benchDatagrams } from './datagrams.js'
import { benchDoors } from './doors.js'
import { benchDrifts } from './drifts.js'
import { benchFirstTraffic } from './first-traffic.js'
import { benchIdleAmphorae } from './idle-amphorae.js'
import { benchKeyManager } from './key-manager.js'
import { benchLarge } from './large.js'
import { benchMachines } from './machines.js'
import { benchManagementLink } from './management-link.js'
import { benchOvn } from './ovn.js'
import { benchRandomChanges } from './random-changes.js'
import { benchRendered } from './rendered.js'
import { benchRenderedTls } from './rendered-tls.js'
import { benchRendering } from './rendering.js'
import { benchRepairBeside } from './repair-beside.js'
import { benchWorstTenant } from './worst-tenant.js'

/** Sections of docs/benchmarks.md, by their names on the command line. */
const SECTIONS: Readonly<Record<string, { title: string; parts: (root: string) => Promise<string[]> }>> = {
  'load-balancer': {
    title: 'API requests',
    parts: async root => [
      '### API',
      'Drivers that touch nothing (`KRATER_NETWORK_DRIVER=noop`, `KRATER_COMPUTE_DRIVER=noop`), so that only the API, its worker and PostgreSQL are measured. They and the clients share this machine. CPU time is that of the API processes; statements are those of one request, including BEGIN and COMMIT.',
      await benchApi(root),
      '### From a POST to the first 200',
      await benchFirstTraffic(root),
    ],
  },
  rendering: {
    title: 'Rendering',
    parts: async () => [benchRendering()],
  },
  change: {
    title: 'From a change of a member to traffic',
    parts: async root => [await benchChangeToTraffic(root)],
  },
  'random-changes': {
    title: 'Random changes under traffic',
    parts: async root => [await benchRandomChanges(root)],
  },
  drifts: {
    title: 'Drifts',
    parts: async root => [await benchDrifts(root)],
  },
  rendered: {
    title: 'Requests through a rendered configuration',
    parts: async () => [await benchRendered()],
  },
  'rendered-tls': {
    title: 'TLS through a rendered configuration',
    parts: async () => [await benchRenderedTls()],
  },
  datagrams: {
    title: 'UDP through an amphora',
    parts: async () => benchDatagrams(),
  },
  'certificate-to-handshake': {
    title: 'From a certificate to the first handshake with it',
    parts: async root => [await benchCertificateToHandshake(root)],
  },
  'idle-amphorae': {
    title: 'Idle amphorae',
    parts: async root => [await benchIdleAmphorae(root)],
  },
  machines: {
    title: 'Kinds of machines',
    parts: async root => [await benchMachines(root)],
  },
  large: {
    title: 'A load balancer with 10,000 members',
    parts: async root => [await benchLarge(root)],
  },
  'management-link': {
    title: 'A dead management network',
    parts: async root => [await benchManagementLink(root)],
  },
  ovn: {
    title: 'Load balancers in OVN',
    parts: async root => benchOvn(root),
  },
  'key-manager': {
    title: 'Key manager',
    parts: async root => [
      'One `krater up` with the back end `simple_crypto`; API, worker, PostgreSQL and the clients share this machine. CPU time is that of the API processes, which also check the token.',
      await benchKeyManager(root),
    ],
  },
  doors: {
    title: 'One account beside a hostile one',
    parts: async root => [
      'One `krater up` with drivers that touch nothing. The waits of another account, alone and beside the load. The load, the other account, the APIs and PostgreSQL share this machine. The load has the lowest priority, so that its requests cost CPU time and their sender does not; the other account’s client has the highest.',
      await benchDoors(root),
    ],
  },
  'worst-tenant': {
    title: 'One account beside the worst',
    parts: async root => [await benchWorstTenant(root)],
  },
  'repair-beside': {
    title: 'A repair beside a tenant that has taken all it can get',
    parts: async root => [await benchRepairBeside(root)],
  },
}

/**
 * Runs the named benchmarks, or all, and writes their tables to standard output and into their sections of
 * docs/benchmarks.md. All of it stays on this machine: loopback and its own namespaces.
 */
async function main(root: string, names: readonly string[]): Promise<void> {
  const known = Object.keys(SECTIONS)
  const unknown = names.filter(name => !known.includes(name))
  if (unknown.length > 0) {
    process.stderr.write(`There is no benchmark ${unknown.join(', ')}. There are: ${known.join(', ')}.\n`)
    process.exitCode = 2
    return
  }
  for (const [name, { title, parts }] of Object.entries(SECTIONS)) {
    if (names.length > 0 && !names.includes(name)) continue
    const text = `${[`## ${title}`, machine(name), ...(await parts(root))].join('\n\n')}\n`
    process.stdout.write(text)
    putIntoPage(join(root, 'docs/benchmarks.md'), title, text)
  }
}

function machine(name: string): string {
  const [first] = cpus()
  const memory = Math.round(totalmem() / 1024 ** 3)
  return `Measured on ${new Date().toISOString().slice(0, 10)}: ${cpus().length} × ${first?.model.trim() ?? 'unknown processor'}, ${memory} GiB, Node.js ${process.version}, \`npm run bench -- ${name}\`.`
}

/** Replaces the section of this benchmark, or appends it; other sections remain. */
function putIntoPage(path: string, title: string, section: string): void {
  const page =
    readOrEmpty(path) ||
    '# Benchmarks\n\nWritten by `npm run bench`. Compare ratios on one machine, not figures across machines.\n'
  const start = page.indexOf(`## ${title}\n`)
  if (start === -1) {
    writeFileSync(path, `${page.trimEnd()}\n\n${section}`)
    return
  }
  const next = page.indexOf('\n## ', start + 1)
  const rest = next === -1 ? '' : page.slice(next)
  writeFileSync(path, `${page.slice(0, start)}${section.trimEnd()}\n${rest}`)
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

const [root = process.cwd(), ...names] = process.argv.slice(2)
await main(root, names)
