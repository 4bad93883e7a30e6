import { z } from 'zod'

const sha256 = z.string().regex(/^[0-9a-f]{64}$/)
const mac = z.string().regex(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/)
const address = z.union([z.ipv4(), z.ipv6()])
const cidr = z.union([z.cidrv4(), z.cidrv6()])

/** The desired configuration of one network interface, identified by its MAC address. */
export const interfaceSchema = z.strictObject({
  mac,
  /** Its name inside the amphora. */
  name: z.string().regex(/^[a-z][a-z0-9-]{0,14}$/),
  mtu: z.int().min(576).max(65535),
  addresses: z.array(cidr),
  routes: z.array(z.strictObject({ destination: cidr, gateway: address })),
  /**
   * VIPs on this interface (as /32 or /128), added by the agent, or by keepalived in a pair. Replies use
   * source-based routing through the gateway.
   */
  vips: z.array(z.strictObject({ address, subnet: cidr, gateway: address.nullable() })),
})

/** A server line in structured form: what can change at runtime, and the remaining words, which cannot. */
export const serverSchema = z.strictObject({
  /** Server name in HAProxy: the member's id. */
  name: z.string(),
  /** Explicit server id. */
  number: z.int().positive(),
  address,
  port: z.int().min(1).max(65535),
  weight: z.int().min(0).max(256),
  /** Administratively down: in maintenance. */
  disabled: z.boolean(),
  backup: z.boolean(),
  /**
   * The remaining words exactly as in the configuration file, all safe for the runtime socket: `check inter 5s
   * ...`.
   */
  options: z.array(z.string()),
})

export const backendSchema = z.strictObject({
  name: z.string(),
  /** False if adding or removing servers needs a reload: before HAProxy 3.0, for servers with a cookie. */
  dynamic: z.boolean(),
  /** Seconds for which a leaving server may finish its connections. States stored by an older agent lack it. */
  deregistrationDelay: z.int().min(0).max(3600).default(30),
  servers: z.array(serverSchema),
})

/** What can change in a listener at runtime. */
const frontendSchema = z.strictObject({ name: z.string(), maxconn: z.int().positive() })

export const haproxySchema = z.strictObject({
  /** The whole configuration file. It uses the sockets, log line, accounts and files of paths.ts. */
  text: z.string().max(16 * 1024 * 1024),
  sha256,
  /** Hash of the text without server lines and frontend limits: if two hashes are equal, only those differ. */
  skeletonSha256: sha256,
  /** States stored by an older agent lack it. */
  frontends: z.array(frontendSchema).default([]),
  backends: z.array(backendSchema),
})

/**
 * The numbering of objects in reports. It is sent and stored with the desired state, so neither side derives it. A
 * pool appears once per listener that uses it.
 */
export const objectTableSchema = z.strictObject({
  listeners: z.array(z.string()),
  pools: z.array(z.strictObject({ poolId: z.string(), listenerId: z.string(), members: z.array(z.string()) })),
})

/** The complete desired state of one amphora. Declarative: applying it twice changes nothing. */
export const desiredSchema = z.strictObject({
  loadBalancerId: z.uuid(),
  generation: z.int().nonnegative(),
  /** Raised whenever a worker claims the load balancer; a lower one is refused even for the same generation. */
  fence: z.int().nonnegative(),
  interfaces: z.array(interfaceSchema),
  /** Null if there is nothing to serve: no listener, or the load balancer is disabled. */
  haproxy: haproxySchema.nullable(),
  /** keepalived's configuration file in a pair; null for a single amphora, which holds the VIP itself. */
  keepalived: z.strictObject({ text: z.string().max(1024 * 1024), sha256 }).nullable(),
  /**
   * In a pair: its own address on the VIP's network, and the peers with which it shares stick tables and speaks
   * VRRP from that address. Null for a single amphora. States stored by an older agent lack it.
   */
  pair: z
    .strictObject({ address, peers: z.array(address).min(1) })
    .nullable()
    .default(null),
  /**
   * How many old workers may keep running for their connections, and in how much memory; the oldest are ended
   * first. States stored by an older agent lack it.
   */
  oldWorkers: z.strictObject({ most: z.int().min(1), memoryMib: z.int().min(1) }).default({ most: 50, memoryMib: 512 }),
  objects: objectTableSchema,
  /**
   * Members last reported to the controller as down, for an amphora that has not checked any yet. Not part of the
   * desired configuration. States stored by an older agent lack it.
   */
  downMembers: z.array(z.string()).default([]),
  /** Hash over all parts; the amphora reports it as its configuration. */
  sha256,
})

export type Interface = z.output<typeof interfaceSchema>
export type Server = z.output<typeof serverSchema>
export type Frontend = z.output<typeof frontendSchema>
export type Backend = z.output<typeof backendSchema>
export type HaproxyPart = z.output<typeof haproxySchema>
export type OldWorkerLimits = Desired['oldWorkers']
export type ObjectTable = z.output<typeof objectTableSchema>
export type Desired = z.output<typeof desiredSchema>
