import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { OvsdbAddress } from '../../../controller/ovsdb/address.js'
import { eventually } from '../eventually.js'

const run = promisify(execFile)

/** A small database, so that tests do not depend on OVN's. */
const SCHEMA = {
  name: 'Test',
  version: '1.0.0',
  tables: {
    Holder: {
      isRoot: true,
      columns: {
        name: { type: 'string' },
        items: { type: { key: { type: 'uuid', refTable: 'Item', refType: 'strong' }, min: 0, max: 'unlimited' } },
        count: { type: 'integer' },
      },
      indexes: [['name']],
    },
    Item: {
      columns: {
        name: { type: 'string' },
        notes: { type: { key: 'string', value: 'string', min: 0, max: 'unlimited' } },
        words: { type: { key: 'string', min: 0, max: 'unlimited' } },
        flag: { type: { key: 'boolean', min: 0, max: 1 } },
      },
    },
  },
} as const

export const TEST_TABLES = {
  Holder: { name: 'text', items: 'uuids', count: 'integer' },
  Item: { name: 'text', notes: 'map', words: 'texts', flag: 'optional boolean' },
} as const

export type OvsdbServer = {
  address: OvsdbAddress
  start: () => Promise<void>
  /** Ends it by this signal, and waits for its end. */
  end: (signal?: NodeJS.Signals) => Promise<void>
  /** Runs a command of ovs-appctl in it. */
  control: (...words: string[]) => Promise<string>
}

/** Writes the schema. @returns its file */
export function writeTestSchema(directory: string): string {
  const file = join(directory, 'test.ovsschema')
  writeFileSync(file, JSON.stringify(SCHEMA))
  return file
}

/**
 * A server with a database file, not started yet.
 * @param remotes what it listens on, in ovsdb-server's words
 */
export function ovsdbServer(
  directory: string,
  {
    database,
    address,
    remotes,
    words = [],
  }: { database: string; address: OvsdbAddress; remotes: string[]; words?: string[] },
): OvsdbServer {
  const control = join(directory, 'control')
  let child: ChildProcess | null = null
  mkdirSync(directory, { recursive: true })
  return {
    address,
    start: async () => {
      child = spawn(
        'ovsdb-server',
        [
          ...remotes.map(remote => `--remote=${remote}`),
          `--unixctl=${control}`,
          `--log-file=${join(directory, 'log')}`,
          ...words,
          database,
        ],
        { stdio: 'ignore', env: { ...process.env, OVS_RUNDIR: directory } },
      )
      const started = child
      await eventually('the server answers', async () => {
        if (started.exitCode !== null) throw new Error(`ovsdb-server ended with ${started.exitCode}`)
        return existsSync(control) && (await appctl(control, 'version').catch(() => null))
      })
    },
    end: async (signal = 'SIGTERM') => {
      if (child === null || child.exitCode !== null || child.signalCode !== null) return
      const ended = once(child, 'exit')
      child.kill(signal)
      await ended
    },
    control: (...command) => appctl(control, ...command),
  }
}

async function appctl(control: string, ...words: string[]): Promise<string> {
  const { stdout } = await run('ovs-appctl', ['-T', '5', '-t', control, ...words])
  return stdout
}

/** A server with a database of its own, by default the small one. */
export async function standaloneServer(directory: string, schema?: string): Promise<OvsdbServer> {
  mkdirSync(directory, { recursive: true })
  const database = join(directory, 'test.db')
  await run('ovsdb-tool', ['create', database, schema ?? writeTestSchema(directory)])
  const path = join(directory, 'socket')
  return ovsdbServer(directory, { database, address: { kind: 'unix', path }, remotes: [`punix:${path}`] })
}

export type ServerTls = { key: string; certificate: string; ca: string }

export const tlsWords = ({ key, certificate, ca }: ServerTls): string[] => [
  `--private-key=${key}`,
  `--certificate=${certificate}`,
  `--ca-cert=${ca}`,
]

/** What a cluster serves; by default, the small database over TCP. */
export type ClusterOptions = { name: string; schema: string; tls?: ServerTls }

/** Three servers of one database (RAFT), started. @param ports six of them */
export async function serverCluster(
  directory: string,
  ports: readonly number[],
  options?: ClusterOptions,
): Promise<OvsdbServer[]> {
  const { name, schema, tls } = options ?? { name: 'Test', schema: writeTestSchema(directory) }
  const kind = tls === undefined ? 'tcp' : 'ssl'
  const raft = (index: number) => `${kind}:127.0.0.1:${ports[index + 3]}`
  const servers: OvsdbServer[] = []
  for (const index of [0, 1, 2]) {
    const own = join(directory, `server-${index}`)
    mkdirSync(own)
    const database = join(own, 'test.db')
    if (index === 0) await run('ovsdb-tool', ['create-cluster', database, schema, raft(0)])
    else await run('ovsdb-tool', ['join-cluster', database, name, raft(index), raft(0)])
    const port = ports[index] ?? 0
    const server = ovsdbServer(own, {
      ...{ database, address: { kind, host: '127.0.0.1', port } },
      ...{ remotes: [`p${kind}:${port}:127.0.0.1`], words: tls === undefined ? [] : tlsWords(tls) },
    })
    await server.start()
    await eventually(
      'it has joined',
      async () => /Status: cluster member/.test(await server.control('cluster/status', name).catch(() => '')),
      20_000,
    )
    servers.push(server)
  }
  return servers
}

/** The one that leads, once there is one. */
export async function leaderOf(servers: readonly OvsdbServer[], name = 'Test'): Promise<OvsdbServer> {
  return eventually(
    'there is a leader',
    async () => {
      for (const server of servers) {
        const status = await server.control('cluster/status', name).catch(() => '')
        if (/^Role: leader/m.test(status)) return server
      }
      return null
    },
    20_000,
  )
}
