import { execFile } from 'node:child_process'
import { chownSync, closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { postgresPrograms } from '../../../controller/database/private-cluster.js'
import { until } from '../worlds/krater.js'
import type { MachineRoom, RoomMachine } from '../worlds/machine-room.js'

const run = promisify(execFile)

const PASSWORD = 'only-for-tests'

/** A replicated PostgreSQL: three machines with Patroni, and one with etcd, which tells them who leads. */
export type PatroniCluster = {
  /** The administrator's URL, which follows the primary, over TLS. */
  url: string
  /** The same, of one node only. */
  urlOf: (node: RoomMachine) => string
  nodes: readonly RoomMachine[]
  /** Waits for a node that takes writes. */
  primary: () => Promise<RoomMachine>
  /** Waits until all nodes run, and one can take over without losing a change. */
  isWhole: () => Promise<void>
  /** Switches a node on, and starts what it runs. */
  boot: (node: RoomMachine) => Promise<void>
  /** The same, as a copy of the primary: what it wrote alone keeps it from following another one. */
  bootAnew: (node: RoomMachine) => Promise<void>
  /** Kills a node's Patroni alone. Its PostgreSQL goes on. */
  killPatroni: (node: RoomMachine) => Promise<void>
  /** Whether a node's PostgreSQL says that it is a primary. */
  takesWrites: (node: RoomMachine) => Promise<boolean>
}

/** Starts a cluster that acknowledges a change once a second node has it. */
export async function startPatroni(room: MachineRoom): Promise<PatroniCluster> {
  const directory = mkdtempSync(join(tmpdir(), 'kr-patroni-'))
  const { uid, gid } = await postgresAccount()
  // In memory: a slow disk must not cost a leader its lease.
  await run('mount', ['-t', 'tmpfs', '-o', `size=3g,mode=700,uid=${uid},gid=${gid}`, 'patroni', directory])
  room.afterEnd(async () => {
    await run('umount', [directory])
    rmSync(directory, { recursive: true })
  })
  const keeper = await room.add('etcd')
  const nodes = [await room.add('db1'), await room.add('db2'), await room.add('db3')]
  await makeCertificates(directory, nodes, { uid, gid })
  const logOf = (name: string) => openSync(join(directory, `${name}.log`), 'a', 0o600)
  const startLogged = (machine: RoomMachine, argv: readonly [string, ...string[]]) => {
    const log = logOf(machine.name)
    machine.start(argv, { environment: { PATH: process.env.PATH, HOME: directory, LC_ALL: 'C.UTF-8' }, log })
    closeSync(log)
  }
  startLogged(keeper, [
    ...(['etcd', '--data-dir', join(directory, 'etcd')] as const),
    ...[
      '--listen-client-urls',
      `http://${keeper.address}:2379`,
      '--advertise-client-urls',
      `http://${keeper.address}:2379`,
    ],
  ])
  const settingsFile = ({ name }: RoomMachine) => join(directory, `${name}.yml`)
  const startNode = (node: RoomMachine) => {
    const file = settingsFile(node)
    mkdirSync(join(directory, node.name), { recursive: true })
    chownSync(join(directory, node.name), uid, gid)
    writeFileSync(file, settingsOf(directory, keeper, node))
    startLogged(node, ['setpriv', '--reuid=postgres', '--regid=postgres', '--init-groups', 'patroni', file])
  }
  const answers = async (node: RoomMachine, path: string): Promise<boolean> => {
    if (!node.isOn()) return false
    const url = `http://${node.address}:8008${path}`
    const { stdout } = await keeper.run(['curl', '-s', '-m', '2', '-o', '/dev/null', '-w', '%{http_code}', url])
    return stdout === '200'
  }
  const findPrimary = async (): Promise<RoomMachine | null> => {
    const found = await Promise.all(nodes.map(async node => ((await answers(node, '/primary')) ? [node] : [])))
    return found.flat()[0] ?? null
  }
  for (const node of nodes) startNode(node)
  const authority = encodeURIComponent(join(directory, 'ca.pem'))
  const urlOf = (...asked: readonly RoomMachine[]) =>
    `postgres://postgres:${PASSWORD}@${asked.map(({ address }) => `${address}:5432`).join(',')}/postgres?target_session_attrs=read-write&sslmode=verify-full&sslrootcert=${authority}`
  const cluster: PatroniCluster = {
    url: urlOf(...nodes),
    urlOf: node => urlOf(node),
    nodes,
    primary: async () => {
      let found: RoomMachine | null = null
      await until('a node is the primary', async () => {
        found = await findPrimary()
        return found !== null
      })
      if (found === null) throw new Error('There is no primary.')
      return found
    },
    isWhole: () =>
      until('there is a primary, another node has all that it has, and all run', async () => {
        const synchronous = await Promise.all(nodes.map(node => answers(node, '/sync')))
        const running = await Promise.all(nodes.map(node => answers(node, '/health')))
        return (await findPrimary()) !== null && synchronous.some(Boolean) && running.every(Boolean)
      }).catch(cause => {
        const said = nodes.map(({ name }) => readFileSync(join(directory, `${name}.log`), 'utf8').slice(-1500))
        throw new Error(`The cluster is not whole. What its nodes said last:\n${said.join('\n\n')}`, { cause })
      }),
    boot: async node => {
      await node.powerOn()
      rmSync(join(directory, node.name, 'data/postmaster.pid'), { force: true })
      startNode(node)
    },
    bootAnew: async node => {
      await node.powerOn()
      rmSync(join(directory, node.name, 'data'), { recursive: true, force: true })
      startNode(node)
    },
    killPatroni: async node => {
      const { stdout } = await node.run(['pgrep', '-f', `patroni ${settingsFile(node)}`])
      await node.run(['kill', '-KILL', ...stdout.trim().split('\n')])
    },
    takesWrites: async node => {
      const socket = join(directory, node.name)
      const question = ['-c', 'SELECT NOT pg_is_in_recovery()']
      const { stdout } = await node.run(['psql', '-XAt', '-h', socket, '-U', 'postgres', ...question])
      return stdout.trim() === 't'
    },
  }
  await cluster.isWhole()
  return cluster
}

async function postgresAccount(): Promise<{ uid: number; gid: number }> {
  const { stdout } = await run('getent', ['passwd', 'postgres'])
  const [, , uid, gid] = stdout.split(':')
  return { uid: Number(uid), gid: Number(gid) }
}

/** A CA, and one certificate for all nodes. */
async function makeCertificates(
  directory: string,
  nodes: readonly RoomMachine[],
  { uid, gid }: { uid: number; gid: number },
): Promise<void> {
  const path = (name: string) => join(directory, name)
  const openssl = (...words: string[]) => run('openssl', words, { timeout: 60_000 })
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  await openssl(
    'req',
    '-x509',
    ...key,
    '-keyout',
    path('ca.key'),
    '-out',
    path('ca.pem'),
    '-subj',
    '/CN=test CA',
    '-days',
    '2',
  )
  await openssl('req', ...key, '-keyout', path('server.key'), '-out', path('server.csr'), '-subj', '/CN=database')
  writeFileSync(path('names'), `subjectAltName=${nodes.map(({ address }) => `IP:${address}`).join(',')}\n`)
  await openssl(
    ...['x509', '-req', '-in', path('server.csr'), '-CA', path('ca.pem'), '-CAkey', path('ca.key'), '-CAcreateserial'],
    ...['-out', path('server.pem'), '-days', '2', '-extfile', path('names')],
  )
  for (const name of ['server.key', 'server.pem']) chownSync(path(name), uid, gid)
}

function settingsOf(directory: string, keeper: RoomMachine, { name, address }: RoomMachine): string {
  const data = join(directory, name)
  return JSON.stringify({
    scope: 'krater',
    name,
    restapi: { listen: `${address}:8008`, connect_address: `${address}:8008` },
    etcd3: { host: `${keeper.address}:2379` },
    bootstrap: {
      dcs: {
        ...{ ttl: 20, loop_wait: 2, retry_timeout: 6, synchronous_mode: true },
        // A node that has changes of its own becomes a copy of the primary.
        // Patroni ignores max_connections in a node's own settings, and allows 100 by default.
        postgresql: { use_pg_rewind: false, parameters: { max_connections: 400 } },
      },
      initdb: [{ encoding: 'UTF8' }, 'data-checksums'],
    },
    postgresql: {
      remove_data_directory_on_diverged_timelines: true,
      basebackup: [{ checkpoint: 'fast' }],
      listen: `${address}:5432`,
      connect_address: `${address}:5432`,
      data_dir: join(data, 'data'),
      bin_dir: postgresPrograms(),
      pgpass: join(data, 'pgpass'),
      pg_hba: [
        'local all all trust',
        ...['all', 'replication'].map(what => `host ${what} all ${address}/24 scram-sha-256`),
      ],
      parameters: {
        ...{ unix_socket_directories: data, max_wal_size: '256MB', ssl: 'on', jit: 'off' },
        ...{ ssl_cert_file: join(directory, 'server.pem'), ssl_key_file: join(directory, 'server.key') },
      },
      authentication: {
        superuser: { username: 'postgres', password: PASSWORD },
        replication: { username: 'replicator', password: PASSWORD },
      },
    },
    watchdog: { mode: 'off' },
  })
}
