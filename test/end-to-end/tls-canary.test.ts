import { execFile } from 'node:child_process'
import { createPrivateKey } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { searchFiles, searchFor } from '../support/canary.js'
import { processesInside } from '../support/faults/crash-amphora.js'
import { certificateFor, createHttpsSite } from '../support/worlds/https-site.js'
import { startKrater, until } from '../support/worlds/krater.js'

/** The key of a certificate that a listener serves is in the amphora's memory, and nowhere else in clear. */
t.setTimeout(1_100_000)

const run = promisify(execFile)
const NAME = 'www.example.com'

const krater = await startKrater(t, { KRATER_LOG_LEVEL: 'trace' })
const pair = certificateFor(NAME)
const key = createPrivateKey(pair.privateKey)
const { d } = key.export({ format: 'jwk' })
const linesOf = (type: 'pkcs8' | 'sec1') => String(key.export({ format: 'pem', type })).split('\n')
/** PEM breaks the number into lines. These are the parts of lines that hold some of it, without what all keys share. */
const lines = [linesOf('pkcs8')[1]?.slice(48), linesOf('pkcs8')[2], linesOf('sec1')[1]?.slice(10)].map(String)
const search = searchFor([
  { name: 'the key', bytes: Buffer.from(String(d), 'base64url') },
  ...lines.map(line => ({ name: 'a line of its PEM', bytes: Buffer.from(line) })),
])
const site = await createHttpsSite(t, krater, pair)

const { amphorae } = (await (
  await krater.api('krater-admin')
).request('load-balancer', 'GET', '/v2/octavia/amphorae')) as {
  amphorae: { id: string; loadbalancer_id: string | null }[]
}
const id = amphorae.find(one => one.loadbalancer_id === site.id)?.id ?? ''
const first = (await processesInside(`krater-${krater.instance()}-${id}`)).find(({ isFirst }) => isFirst)
const root = `/proc/${first?.pid}/root`
/** Files in a directory of the amphora that hold the key, without that directory. */
const foundIn = (directory: string) =>
  searchFiles(`${root}${directory}`, search).map(place => place.slice(`${root}${directory}/`.length))

t.test('it is nowhere else', async t => {
  t.equal((await site.ask(NAME)).status, 200)
  const administrator = `postgres://postgres@/postgres?host=${encodeURIComponent(join(krater.directory, 'postgres/socket'))}`
  await run('psql', ['-d', administrator, '-c', 'CHECKPOINT'], { timeout: 60_000 })
  const { stdout } = await run('pg_dump', ['-d', administrator], {
    ...{ timeout: 60_000, maxBuffer: 256 * 1024 * 1024, encoding: 'buffer' as const },
  })
  t.same(search(stdout), [], 'a dump of the database')
  t.same(searchFiles(krater.directory, search), [], 'the state directory: logs, files and WAL of PostgreSQL, amphorae')
  const processes = readdirSync('/proc').filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
  for (const file of ['cmdline', 'environ']) {
    const holding = processes.filter(pid => {
      try {
        return search(readFileSync(`/proc/${pid}/${file}`)).length > 0
      } catch {
        // The process exited.
        return false
      }
    })
    t.same(holding, [], `${file} of every process`)
  }
  t.same(foundIn('/var/lib'), [], 'what an amphora keeps on its disk')
})

t.test('an amphora holds it in memory, where only root reads it, until its listener is deleted', async t => {
  const { stdout } = await run('nsenter', ['-m', '-t', String(first?.pid), 'stat', '-f', '-c', '%T', '/run/krater'])
  t.equal(stdout.trim(), 'tmpfs')
  const holding = foundIn('/run/krater')
  t.ok(holding.length >= 1, 'the search finds it')
  for (const place of new Set(holding.map(one => one.split(': ')[0] ?? ''))) {
    t.match(place, /^(tls|config\/(\d+|confirmed|current)\/tls)\//)
    const mode = await run('stat', ['-c', '%a', `${root}/run/krater/${place}`])
    t.equal(mode.stdout.trim(), '600', place)
  }
  await site.send('DELETE', `listeners/${site.listener}`)
  await until('the amphora holds it no more', () => foundIn('/run/krater').length === 0)
})
