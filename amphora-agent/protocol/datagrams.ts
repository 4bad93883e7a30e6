import * as z from 'zod'

/** The table of family inet that carries it out. */
export const DATAGRAM_TABLE = 'krater_datagrams'

const id = z.string().regex(/^[0-9a-f-]{36}$/)
const address = z.union([z.ipv4(), z.ipv6()])
const cidr = z.union([z.cidrv4(), z.cidrv6()])
const port = z.int().min(1).max(65535)

/** How the agent finds out whether a member of a UDP or SCTP pool works. Times are seconds. */
const monitorSchema = z.strictObject({
  type: z.enum(['UDP-CONNECT', 'SCTP', 'TCP', 'HTTP', 'PING']),
  delay: z.int().min(1),
  timeout: z.int().min(1),
  /** Consecutive successes until a member is up, and failures until it is down. */
  rise: z.int().min(1).max(10),
  fall: z.int().min(1).max(10),
  /** The request of an HTTP probe, null for other types. `codes`: `200`, `200, 202` or `200-204`. */
  http: z
    .strictObject({
      method: z.string().regex(/^[A-Z]{1,16}$/),
      path: z.string().regex(/^\/[!-~]{0,2047}$/),
      version: z.enum(['1.0', '1.1']),
      host: z
        .string()
        .regex(/^[!-~]{1,255}$/)
        .nullable(),
      codes: z
        .string()
        .regex(/^[1-5]\d\d(-[1-5]\d\d|([ \t]*,[ \t]*[1-5]\d\d)*)$/)
        .max(64),
    })
    .nullable(),
  /** What a UDP-CONNECT probe sends, and what the answer must begin with, in hexadecimal digits. Null: any datagram, and no answer. */
  exchange: z
    .strictObject({
      payload: z.string().regex(/^([0-9a-f]{2}){0,1024}$/),
      answer: z.string().regex(/^([0-9a-f]{2}){0,1024}$/),
    })
    .nullable(),
})

const memberSchema = z.strictObject({
  id,
  address,
  port,
  /** 0 drains: clients that are bound to it stay, others do not come. */
  weight: z.int().min(0).max(256),
  /** Serves while no other member is up. */
  backup: z.boolean(),
  disabled: z.boolean(),
  /** Where probes go. */
  monitor: z.strictObject({ address, port }),
})

const poolSchema = z.strictObject({
  id,
  algorithm: z.enum(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP', 'SOURCE_IP_PORT']),
  /** Clients whose addresses agree in so many leading bits stay with a member while they are not silent for so long. */
  persistence: z
    .strictObject({
      seconds: z.int().min(1),
      bits: z.strictObject({ ipv4: z.int().min(0).max(32), ipv6: z.int().min(0).max(128) }),
    })
    .nullable(),
  monitor: monitorSchema.nullable(),
  /** By id. */
  members: z.array(memberSchema),
})

const listenerSchema = z.strictObject({
  id,
  protocol: z.enum(['udp', 'sctp']),
  port,
  /** Concurrent flows; null if they are not limited. */
  limit: z.int().min(0).nullable(),
  /** Where clients may be; null: anywhere. */
  allowed: z.array(cidr).nullable(),
  /** How long a flow without packets is remembered. */
  idleSeconds: z.int().min(1),
  /** Null: clients are refused. */
  poolId: id.nullable(),
})

/** UDP and SCTP: what the agent balances with nftables, beside HAProxy. A pool that two listeners use appears once. */
export const datagramsSchema = z.strictObject({
  vips: z.array(address),
  listeners: z.array(listenerSchema),
  pools: z.array(poolSchema),
})

export type DatagramMonitor = z.output<typeof monitorSchema>
export type DatagramMember = z.output<typeof memberSchema>
export type DatagramPool = z.output<typeof poolSchema>
export type DatagramListener = z.output<typeof listenerSchema>
export type Datagrams = z.output<typeof datagramsSchema>
