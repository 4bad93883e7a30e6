import { readFileSync, writeFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { join } from 'node:path'
import { benchApi } from './api.js'
import { benchFirstTraffic } from './first-traffic.js'
import { benchRendering } from './rendering.js'
import { benchWeightChange } from './weight-change.js'

const SECTION = 'API requests and the way of a change'

/**
 * Runs every benchmark and writes their tables to standard output and into their section of docs/benchmarks.md. All of it stays on
 * this machine: loopback, and namespaces of its own.
 */
async function main(root: string): Promise<void> {
  const tables = [
    `## ${SECTION}`,
    machine(),
    '### API',
    'Drivers that touch nothing (`KRATER_NETWORK_DRIVER=noop`, `KRATER_COMPUTE_DRIVER=noop`), so that the API, its worker and PostgreSQL are what is measured; all of them, and the clients, share this machine. Processor time is that of the API process; statements are those of one request, BEGIN and COMMIT included.',
    await benchApi(root),
    '### From a change to traffic',
    await benchWeightChange(root),
    '### From a POST to the first 200',
    await benchFirstTraffic(root),
    '### Rendering',
    benchRendering(),
  ]
  const text = `${tables.join('\n\n')}\n`
  process.stdout.write(text)
  putIntoPage(join(root, 'docs/benchmarks.md'), text)
}

function machine(): string {
  const [first] = cpus()
  const memory = Math.round(totalmem() / 1024 ** 3)
  return `Measured on ${new Date().toISOString().slice(0, 10)}: ${cpus().length} × ${first?.model.trim() ?? 'unknown processor'}, ${memory} GiB, Node.js ${process.version}, \`npm run bench\`.`
}

/** Replaces the section of this benchmark, or appends it; other sections stay. */
function putIntoPage(path: string, section: string): void {
  const page =
    readOrEmpty(path) ||
    '# Benchmarks\n\nWritten by `npm run bench`. Compare ratios on one machine, not figures across machines.\n'
  const start = page.indexOf(`## ${SECTION}`)
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

await main(process.argv[2] ?? process.cwd())
