import { execFile } from 'node:child_process'
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findPostmaster, removeMarksOfDead } from './postmaster.js'

const run = promisify(execFile)

export type ClusterOptions = {
  /** Holds the data (data/) and the socket (socket/). Owned by the postgres account. */
  directory: string
  /** Speed at the cost of durability, for tests. */
  durable: boolean
  settings?: Readonly<Record<string, string>>
}

const UNFINISHED = 'data.new-'
const ATTEMPTS = 30

export type Cluster = {
  /** Connects as the superuser over the socket, which only root and the postgres account can reach. */
  administratorUrl: string
  urlOf: (role: string, password: string, database?: string) => string
  /** Fast shutdown: open transactions are rolled back, committed ones are on disk. */
  stop: () => Promise<void>
}

/** The newest PostgreSQL server programs that Debian's packages installed. @throws Error naming the package when there are none */
export function postgresPrograms(): string {
  const root = '/usr/lib/postgresql'
  const versions = existsSync(root)
    ? readdirSync(root)
        .map(Number)
        .filter(version => existsSync(join(root, String(version), 'bin/postgres')))
    : []
  if (versions.length === 0) throw new Error('PostgreSQL is not installed: apt-get install postgresql')
  return join(root, String(Math.max(...versions)), 'bin')
}

/**
 * Makes (once) and starts a PostgreSQL cluster of our own that listens on a socket only. A cluster that still runs from
 * before is used as it is. It runs as the postgres account, since PostgreSQL refuses root, detached from this process. After a kill its
 * orphaned processes may hold the shared memory for a moment longer: that is waited for.
 */
export async function startCluster({ directory, durable, settings = {} }: ClusterOptions): Promise<Cluster> {
  const programs = postgresPrograms()
  const data = join(directory, 'data')
  const socket = join(directory, 'socket')
  mkdirSync(directory, { recursive: true, mode: 0o755 })
  const { uid, gid } = await postgresAccount()
  const ensureOwn = (path: string) => {
    mkdirSync(path, { recursive: true, mode: 0o700 })
    chownSync(path, uid, gid)
  }
  ensureOwn(socket)
  const asPostgres = (program: string, args: string[]) =>
    run(join(programs, program), args, {
      uid,
      gid,
      cwd: '/',
      env: { PATH: process.env.PATH, LC_ALL: 'C.UTF-8' },
      timeout: 120_000,
    })
  if (!existsSync(join(data, 'PG_VERSION'))) {
    // Made aside and moved when it is whole: what a kill in the middle leaves would pass for a cluster, and never start.
    for (const name of readdirSync(directory)) {
      if (name.startsWith(UNFINISHED)) rmSync(join(directory, name), { recursive: true, force: true })
    }
    const aside = join(directory, `${UNFINISHED}${process.pid}`)
    ensureOwn(aside)
    const sync = durable ? [] : ['--no-sync']
    await asPostgres('initdb', [
      '-D',
      aside,
      '-U',
      'postgres',
      '-E',
      'UTF8',
      '--locale=C.UTF-8',
      '--auth=peer',
      ...sync,
    ])
    // The superuser comes in by its account (root through the map); every service role needs its password.
    writeFileSync(join(aside, 'pg_hba.conf'), 'local all postgres peer map=superuser\nlocal all all scram-sha-256\n')
    writeFileSync(join(aside, 'pg_ident.conf'), 'superuser root postgres\nsuperuser postgres postgres\n')
    renameSync(aside, data)
  }
  const flags = {
    listen_addresses: '',
    unix_socket_directories: socket,
    unix_socket_permissions: '0777',
    max_connections: '200',
    logging_collector: 'off',
    // Every statement is short: compiling one takes longer than any of them runs.
    jit: 'off',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  }
  const options = Object.entries(flags)
    .map(([name, value]) => `-c ${name}='${value}'`)
    .join(' ')
  const logFile = join(data, 'server.log')
  const start = () =>
    asPostgres('pg_ctl', ['start', '-w', '-t', '60', '-s', '-D', data, '-l', logFile, '-o', options]).catch(error => {
      const log = existsSync(logFile) ? readFileSync(logFile, 'utf8').trim().split('\n').slice(-3).join('\n') : ''
      throw new Error(`PostgreSQL did not start: ${log || error}`)
    })
  for (let attempt = 1; findPostmaster(directory) === null; attempt++) {
    removeMarksOfDead(directory)
    const fault = await start().then(
      () => null,
      error => error,
    )
    if (fault === null) break
    if (attempt === ATTEMPTS || !/pre-existing shared memory|still in use/.test(String(fault))) throw fault
    await delay(500)
  }
  const urlOf = (role: string, password: string, database = 'postgres') =>
    `postgres://${role}:${encodeURIComponent(password)}@/${database}?host=${encodeURIComponent(socket)}`
  return {
    administratorUrl: `postgres://postgres@/postgres?host=${encodeURIComponent(socket)}`,
    urlOf,
    stop: async () => {
      await asPostgres('pg_ctl', ['stop', '-w', '-t', '60', '-s', '-m', 'fast', '-D', data]).catch(() => undefined)
    },
  }
}

async function postgresAccount(): Promise<{ uid: number; gid: number }> {
  const { stdout } = await run('getent', ['passwd', 'postgres']).catch(() => {
    throw new Error('There is no postgres account: apt-get install postgresql')
  })
  const [, , uid, gid] = stdout.split(':')
  return { uid: Number(uid), gid: Number(gid) }
}
