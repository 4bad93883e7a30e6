import { randomUUID } from 'node:crypto'
import { createSocket } from 'node:dgram'
import type { Test } from 'tap'
import { encodeBeat, encodeReport } from '../../../amphora-agent/protocol/heartbeat/datagram.js'
import type { Beat, Report } from '../../../amphora-agent/protocol/heartbeat.js'
import { amphoraIdentity } from '../../../controller/compute/amphora-identity.js'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { startHealthManager } from '../../../controller/health-manager/health-manager.js'
import { createLog } from '../../../controller/log/log.js'
import { createTestDatabase } from '../database/database.js'

export const MASTER = Buffer.alloc(32, 7)
export const SHA = 'ab'.repeat(32)
export const none = { bytesIn: 0, bytesOut: 0, activeConnections: 0, totalConnections: 0, requestErrors: 0 }

export const startManager = (db: Database, staleAfter: number) =>
  startHealthManager({
    database: db,
    hosts: ['127.0.0.1'],
    hostId: null,
    config: { ...configurationSchema.parse({}).health_manager, port: 0, stale_after: staleAfter },
    masterKey: MASTER,
    log: createLog('test', 'silent'),
  })

/** A health manager with a load balancer of one listener, one pool and two members, and its amphora. */
export async function createWorld(t: Test, staleAfter = 1) {
  const database = await createTestDatabase()
  const db = database.of('load_balancer')
  const start = () => startManager(db, staleAfter)
  const socket = createSocket('udp4')
  const ids = {
    lb: randomUUID(),
    listener: randomUUID(),
    pool: randomUUID(),
    m1: randomUUID(),
    m2: randomUUID(),
    amphora: randomUUID(),
  }
  const objects = {
    listeners: [ids.listener],
    pools: [{ poolId: ids.pool, listenerId: ids.listener, members: [ids.m1, ids.m2] }],
  }
  await db('load_balancer').insert({
    id: ids.lb,
    project_id: 'p',
    provider: 'amphora',
    topology: 'SINGLE',
    vip_address: '10.0.0.5',
    owns_vip_port: true,
    generation: 3,
    change: 'update',
    applied_generation: 3,
  })
  const common = { load_balancer_id: ids.lb, project_id: 'p', generation: 3 }
  await db('pool').insert({ ...common, id: ids.pool, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' })
  await db('listener').insert({
    ...common,
    id: ids.listener,
    protocol: 'HTTP',
    transport: 'tcp',
    protocol_port: 80,
    default_pool_id: ids.pool,
  })
  await db('member').insert(
    [ids.m1, ids.m2].map((id, i) => ({
      ...common,
      id,
      pool_id: ids.pool,
      server_number: i + 1,
      address: '10.0.0.9',
      protocol_port: 80 + i,
    })),
  )
  await db('amphora').insert({
    id: ids.amphora,
    load_balancer_id: ids.lb,
    status: 'ALLOCATED',
    applied_generation: 3,
    applied_sha256: SHA,
    applied_objects: objects,
  })
  let manager = await start()
  t.teardown(async () => {
    await manager.stop()
    await new Promise<void>(resolve => socket.close(() => resolve()))
    await database.drop()
  })
  let seq = 0
  const envelope = {
    keyId: 1,
    amphoraId: ids.amphora,
    bootId: '0102030405060708',
    generation: 3,
    needsApply: false,
    vrrpMaster: true,
    configHash: SHA.slice(0, 16),
  }
  const key = amphoraIdentity(MASTER, ids.amphora).heartbeatKey
  const send = (bytes: Buffer, port = manager.port) =>
    new Promise<void>((resolve, reject) =>
      socket.send(bytes, port, '127.0.0.1', error => (error ? reject(error) : resolve())),
    )
  const beat = (fields: Partial<Beat> = {}): Beat => ({
    ...envelope,
    kind: 'beat',
    seq: ++seq,
    sentMs: Date.now(),
    haproxyRunning: true,
    load: 1,
    freeMemoryKib: 1,
    mismatches: [],
    ...fields,
  })
  return {
    db,
    ids,
    key,
    send,
    beat,
    sendBeat: (fields: Partial<Beat> = {}) => send(encodeBeat(beat(fields), key)),
    sendReport: async (fields: Partial<Report>, port?: number) => {
      const report = {
        ...envelope,
        kind: 'report' as const,
        sentMs: Date.now(),
        epoch: 'e'.repeat(16),
        listeners: [],
        pools: [],
        checks: [],
        repairs: [],
        ...fields,
      }
      for (const datagram of encodeReport(report, key, () => ++seq)) await send(datagram, port)
    },
    restart: async () => {
      await manager.stop()
      manager = await start()
    },
    /** Polls a query until its answer is as desired. @returns the last answer */
    until: async <T>(read: () => Promise<T>, desired: (value: T) => boolean): Promise<T> => {
      for (let attempt = 0; ; attempt++) {
        const value = await read()
        if (desired(value) || attempt === 100) return value
        await new Promise(resolve => setTimeout(resolve, 50))
      }
    },
  }
}
