import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type CallOptions, passwordLogin, type Reply, send } from '../worlds/identity.js'

const program = fileURLToPath(new URL('./keystone-server.py', import.meta.url))

/** Debian's Keystone with a new database, bootstrapped. Passwords are the user's name and `-pw`. */
export type Keystone = {
  /** Ends in /v3. */
  url: string
  port: number
  /** `call('GET /v3/users', { token })` */
  call: (operation: string, options?: CallOptions) => Promise<Reply>
  /** The token of a login. @throws Error when the login fails */
  tokenOf: (name: string, scope?: string | object, password?: string) => Promise<string>
  /** The same for any `auth` object. */
  tokenFor: (auth: object) => Promise<string>
  /** Kills its process; its database stays. */
  stop: () => Promise<void>
  /** Serves again, on the same port. @param options such as `{ 'token.expiration': 2 }` */
  start: (options?: Record<string, number>) => Promise<void>
  /** Invalidates all tokens issued so far. */
  replaceKeys: () => Promise<void>
  end: () => Promise<void>
}

export async function startKeystone(): Promise<Keystone> {
  const directory = mkdtempSync(join(tmpdir(), 'keystone-'))
  const keys = join(directory, 'fernet')
  const configuration = join(directory, 'keystone.conf')
  mkdirSync(keys, { mode: 0o700 })
  writeFileSync(
    configuration,
    `[database]
connection = sqlite:///${directory}/keystone.db
[fernet_tokens]
key_repository = ${keys}
[cache]
enabled = true
backend = dogpile.cache.memory
[identity]
password_hash_rounds = 4
`,
  )
  const child = spawn('/usr/bin/python3', [program, configuration])
  let log = ''
  child.stderr.setEncoding('utf8').on('data', chunk => {
    log = (log + chunk).slice(-4000)
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  // A process that has ended cannot be written to.
  child.stdin.on('error', () => undefined)
  const command = async (...words: unknown[]): Promise<number> => {
    child.stdin.write(`${JSON.stringify(words)}\n`)
    const { value, done } = await lines.next()
    return done ? -1 : Number(value)
  }
  const manage = async (...args: string[]) => {
    if ((await command('manage', ...args)) !== 0) throw new Error(`keystone-manage ${args[0]} failed:\n${log}`)
  }
  const own = ['--keystone-user', 'root', '--keystone-group', 'root']

  const end = async () => {
    const ended = new Promise(resolve => child.once('close', resolve))
    child.stdin.end()
    await ended
    rmSync(directory, { recursive: true, force: true })
  }
  const setUp = async (): Promise<number> => {
    await manage('db_sync')
    await manage('fernet_setup', ...own)
    await manage('bootstrap', '--bootstrap-password', 'admin-pw')
    const port = await command('serve', 0, {})
    if (!(port > 0)) throw new Error(`Keystone does not serve:\n${log}`)
    return port
  }
  const port = await setUp().catch(async error => {
    await end()
    throw error
  })
  const url = `http://127.0.0.1:${port}`
  const call = (operation: string, options: CallOptions = {}) =>
    send(url, operation, options).catch((error: Error) => {
      throw new Error(`${operation}: ${error.message}\n${log}`)
    })
  const tokenFor = async (auth: object): Promise<string> => {
    const reply = await call('POST /v3/auth/tokens', { body: auth })
    const token = reply.headers.get('X-Subject-Token')
    if (token === null) throw new Error(`The login was answered by ${reply.status}: ${JSON.stringify(reply.body)}`)
    return token
  }
  const stop = async () => {
    await command('stop')
  }
  const start = async (options: Record<string, number> = {}) => {
    if ((await command('serve', port, options)) !== port) throw new Error(`Keystone is not back:\n${log}`)
  }
  return {
    url: `${url}/v3`,
    port,
    call,
    tokenFor,
    tokenOf: (name, scope, password = `${name}-pw`) => tokenFor(passwordLogin(name, password, scope)),
    stop,
    start,
    replaceKeys: async () => {
      await stop()
      rmSync(keys, { recursive: true })
      mkdirSync(keys, { mode: 0o700 })
      await manage('fernet_setup', ...own)
      await start()
    },
    end,
  }
}
