import { execFile } from 'node:child_process'
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findPostmaster, removeStaleLocks } from './postmaster.js'
import { UnusableDatabase } from './unusable-database.js'

const run = promisify(execFile)

export type ClusterOptions = {
  /** Holds the data (data/) and the socket (socket/), which the postgres account owns. */
  directory: string
  /** False trades durability for speed, for tests. */
  durable: boolean
  settings?: Readonly<Record<string, string>>
}

const UNFINISHED = 'data.new-'
const MAX_ATTEMPTS = 30

export type Cluster = {
  /** Connects as the superuser over the socket, which only root and the postgres account can reach. */
  administratorUrl: string
  urlOf: (role: string, password: string, database?: string) => string
  /** Fast shutdown: rolls back open transactions; committed ones are on disk. */
  stop: () => Promise<void>
}

/**
 * The directory of the newest PostgreSQL server programs from Debian's packages.
 * @throws UnusableDatabase that names the package to install
 */
export function postgresPrograms(): string {
  const root = '/usr/lib/postgresql'
  const versions = existsSync(root)
    ? readdirSync(root)
        .map(Number)
        .filter(version => existsSync(join(root, String(version), 'bin/postgres')))
    : []
  if (versions.length === 0) throw new UnusableDatabase('PostgreSQL is not installed. Run: apt-get install postgresql')
  return join(root, String(Math.max(...versions)), 'bin')
}

/**
 * Creates (once) and starts a private PostgreSQL cluster that listens only on a socket, or uses one that is
 * still running. It runs detached from this process as the postgres account, because PostgreSQL refuses root.
 */
export async function startCluster({ directory, durable, settings = {} }: ClusterOptions): Promise<Cluster> {
  const programs = postgresPrograms()
  const data = join(directory, 'data')
  const socket = join(directory, 'socket')
  mkdirSync(directory, { recursive: true, mode: 0o755 })
  const account = await postgresAccount()
  ensurePrivateDirectory(socket, account)
  const asPostgres = createProgramRunner(programs, account)
  if (!existsSync(join(data, 'PG_VERSION'))) await createCluster(directory, { data, account, durable }, asPostgres)
  await startServer(directory, data, serverOptions(socket, durable, settings), asPostgres)
  const host = encodeURIComponent(socket)
  return {
    administratorUrl: `postgres://postgres@/postgres?host=${host}`,
    urlOf: (role, password, database = 'postgres') =>
      `postgres://${role}:${encodeURIComponent(password)}@/${database}?host=${host}`,
    stop: async () => {
      await asPostgres('pg_ctl', ['stop', '-w', '-t', '60', '-s', '-m', 'fast', '-D', data]).catch(() => undefined)
    },
  }
}

type Account = { uid: number; gid: number }

type ProgramRunner = (program: string, args: readonly string[]) => Promise<unknown>

/** @returns a function that runs PostgreSQL's programs as the postgres account */
function createProgramRunner(programs: string, account: Account): ProgramRunner {
  const env = { PATH: process.env.PATH, LC_ALL: 'C.UTF-8' }
  return (program, args) => run(join(programs, program), args, { ...account, cwd: '/', env, timeout: 120_000 })
}

function ensurePrivateDirectory(path: string, { uid, gid }: Account): void {
  mkdirSync(path, { recursive: true, mode: 0o700 })
  chownSync(path, uid, gid)
}

/**
 * Creates the cluster in a temporary directory and renames it when complete: PostgreSQL would take the remains of an
 * interrupted initdb for a cluster and never start.
 */
async function createCluster(
  directory: string,
  { data, account, durable }: { data: string; account: Account; durable: boolean },
  asPostgres: ProgramRunner,
): Promise<void> {
  for (const name of readdirSync(directory)) {
    if (name.startsWith(UNFINISHED)) rmSync(join(directory, name), { recursive: true, force: true })
  }
  const unfinished = join(directory, `${UNFINISHED}${process.pid}`)
  ensurePrivateDirectory(unfinished, account)
  const options = ['-U', 'postgres', '-E', 'UTF8', '--locale=C.UTF-8', '--auth=peer']
  await asPostgres('initdb', ['-D', unfinished, ...options, ...(durable ? [] : ['--no-sync'])])
  // The superuser authenticates by its account (root through the map); every service role needs its password.
  writeFileSync(join(unfinished, 'pg_hba.conf'), 'local all postgres peer map=superuser\nlocal all all scram-sha-256\n')
  writeFileSync(join(unfinished, 'pg_ident.conf'), 'superuser root postgres\nsuperuser postgres postgres\n')
  renameSync(unfinished, data)
}

/** The server's options on the command line. */
function serverOptions(socket: string, durable: boolean, settings: Readonly<Record<string, string>>): string {
  const flags = {
    listen_addresses: '',
    unix_socket_directories: socket,
    unix_socket_permissions: '0777',
    max_connections: '200',
    logging_collector: 'off',
    // Compiling a statement takes longer than running any of them.
    jit: 'off',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  }
  return Object.entries(flags)
    .map(([name, value]) => `-c ${name}='${value}'`)
    .join(' ')
}

/**
 * Starts the server unless it is running. After a kill, its orphaned processes may hold the shared memory for a moment
 * longer, so a start that fails for this reason is retried.
 */
async function startServer(directory: string, data: string, options: string, asPostgres: ProgramRunner): Promise<void> {
  const logFile = join(data, 'server.log')
  const start = () =>
    asPostgres('pg_ctl', ['start', '-w', '-t', '60', '-s', '-D', data, '-l', logFile, '-o', options]).catch(error => {
      const log = existsSync(logFile) ? readFileSync(logFile, 'utf8').trim().split('\n').slice(-3).join(' / ') : ''
      throw new UnusableDatabase(`PostgreSQL did not start: ${log || error}. Its log: ${logFile}`)
    })
  for (let attempt = 1; findPostmaster(directory) === null; attempt++) {
    removeStaleLocks(directory)
    const fault = await start().then(
      () => null,
      error => error,
    )
    if (fault === null) return
    if (attempt === MAX_ATTEMPTS || !/pre-existing shared memory|still in use/.test(String(fault))) throw fault
    await delay(500)
  }
}

async function postgresAccount(): Promise<Account> {
  const { stdout } = await run('getent', ['passwd', 'postgres']).catch(() => {
    throw new UnusableDatabase('There is no postgres account. Run: apt-get install --reinstall postgresql')
  })
  const [, , uid, gid] = stdout.split(':')
  return { uid: Number(uid), gid: Number(gid) }
}
