import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { makePair } from '../inputs/certificates.js'

const program = fileURLToPath(new URL('./barbican-server.py', import.meta.url))

/** Debian's Barbican with a new database, over HTTPS, beside a Keystone that has the user `barbican` of `service`. */
export type Barbican = {
  /** Without /v1. */
  url: string
  /** PEM file of the CA of its certificate. */
  caFile: string
  /** Kills its process; its database stays. */
  stop: () => Promise<void>
  /** Serves again, on the same port. */
  start: () => Promise<void>
  end: () => Promise<void>
}

export async function startBarbican(keystoneUrl: string): Promise<Barbican> {
  const home = mkdtempSync(join(tmpdir(), 'barbican-'))
  const database = `sqlite:///${home}/barbican.db`
  mkdirSync(join(home, '.barbican'))
  writeFileSync(
    join(home, '.barbican/barbican.conf'),
    `[DEFAULT]
sql_connection = ${database}
db_auto_create = true
[database]
connection = ${database}
[queue]
enable = false
[secretstore]
enabled_secretstore_plugins = store_crypto
[crypto]
enabled_crypto_plugins = simple_crypto
[simple_crypto_plugin]
kek = ${Buffer.alloc(32, 'barbican').toString('base64')}
`,
  )
  const authority = makePair({ subject: '/CN=authority of Barbican' })
  const own = makePair({
    subject: '/CN=barbican',
    issuer: authority,
    args: ['-addext', 'subjectAltName=IP:127.0.0.1'],
  })
  const file = (name: string, text: string) => {
    writeFileSync(join(home, name), text, { mode: 0o600 })
    return join(home, name)
  }
  const caFile = file('ca.pem', authority.certificate)
  const files = [file('own.pem', own.certificate), file('own.key', own.privateKey)]
  let child: ChildProcess | null = null
  let log = ''

  const serve = async (port: number): Promise<number> => {
    const started = spawn('/usr/bin/python3', [program, String(port), keystoneUrl, ...files], {
      env: { ...process.env, HOME: home },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    child = started
    started.stderr.setEncoding('utf8').on('data', chunk => {
      log = (log + chunk).slice(-4000)
    })
    const { value } = await createInterface({ input: started.stdout })[Symbol.asyncIterator]().next()
    if (!(Number(value) > 0)) throw new Error(`Barbican does not serve:\n${log}`)
    return Number(value)
  }
  const stop = async () => {
    if (child === null || child.exitCode !== null) return
    const ended = once(child, 'close')
    child.kill('SIGKILL')
    await ended
    child = null
  }
  const end = async () => {
    await stop()
    rmSync(home, { recursive: true, force: true })
  }
  const port = await serve(0).catch(async error => {
    await end()
    throw error
  })
  return {
    url: `https://127.0.0.1:${port}`,
    caFile,
    stop,
    start: async () => {
      await serve(port)
    },
    end,
  }
}
