import { z } from 'zod'

const sha256 = z.string().regex(/^[0-9a-f]{64}$/)
const mac = z.string().regex(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/)
const address = z.union([z.ipv4(), z.ipv6()])
const cidr = z.union([z.cidrv4(), z.cidrv6()])

/** One network interface as it should be configured; found by its MAC address. */
export const interfaceSchema = z.strictObject({
  mac,
  /** Name it gets inside the amphora. */
  name: z.string().regex(/^[a-z][a-z0-9-]{0,14}$/),
  mtu: z.int().min(576).max(65535),
  addresses: z.array(cidr),
  routes: z.array(z.strictObject({ destination: cidr, gateway: address })),
  /**
   * VIPs held on this interface (with a /32 or /128) by the agent, or by keepalived where there is one; their gateway for replies by
   * source-based routing.
   */
  vips: z.array(z.strictObject({ address, subnet: cidr, gateway: address.nullable() })),
})

/** A server line in structured form: what may change at runtime, and the remaining words, which may not. */
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
  /** Words after these, exactly as in the configuration file, all safe for the runtime socket: `check inter 5s ...`. */
  options: z.array(z.string()),
})

export const backendSchema = z.strictObject({
  name: z.string(),
  /** False when servers cannot be added or removed without a reload: before HAProxy 3.0 those with a cookie. */
  dynamic: z.boolean(),
  /** Seconds in which a server that leaves may finish what is under way; an older agent has stored none. */
  deregistrationDelay: z.int().min(0).max(3600).default(30),
  servers: z.array(serverSchema),
})

/** What may change of a listener at runtime. */
const frontendSchema = z.strictObject({ name: z.string(), maxconn: z.int().positive() })

export const haproxySchema = z.strictObject({
  /** The whole configuration file; its sockets, log line, accounts and files are those of paths.ts. */
  text: z.string().max(16 * 1024 * 1024),
  sha256,
  /** Hash of the text without its server lines and the limits of frontends: equal hashes mean that only these differ. */
  skeletonSha256: sha256,
  /** An older agent has stored none. */
  frontends: z.array(frontendSchema).default([]),
  backends: z.array(backendSchema),
})

/**
 * The numbering of objects in reports. Both sides derive nothing: it travels with the desired state and is stored with it.
 * A pool is counted once per listener that uses it.
 */
export const objectTableSchema = z.strictObject({
  listeners: z.array(z.string()),
  pools: z.array(z.strictObject({ poolId: z.string(), listenerId: z.string(), members: z.array(z.string()) })),
})

/** All that one amphora should be for its load balancer. Declarative: applying it twice changes nothing. */
export const desiredSchema = z.strictObject({
  loadBalancerId: z.uuid(),
  generation: z.int().nonnegative(),
  /** Raised at each claim by a worker; an older one is refused even for the same generation. */
  fence: z.int().nonnegative(),
  interfaces: z.array(interfaceSchema),
  /** Null when there is nothing to serve: no listener, or the load balancer is disabled. */
  haproxy: haproxySchema.nullable(),
  /** keepalived's configuration file for one of a pair; null for a single amphora, which holds the VIP itself. */
  keepalived: z.strictObject({ text: z.string().max(1024 * 1024), sha256 }).nullable(),
  /**
   * One of a pair: its own address on the VIP's network, and whom it shares stick tables and speaks VRRP with from there. Null for a single one,
   * and in what an older agent has stored.
   */
  pair: z
    .strictObject({ address, peers: z.array(address).min(1) })
    .nullable()
    .default(null),
  /**
   * How many workers of former configurations may live on for the sake of their connections, and in how much memory; the oldest end first. An
   * older agent has stored none.
   */
  oldWorkers: z.strictObject({ most: z.int().min(1), memoryMib: z.int().min(1) }).default({ most: 50, memoryMib: 512 }),
  objects: objectTableSchema,
  /**
   * Members that the controller last heard to be down, for an amphora that has seen none of them yet. Not a part of what it should be; an older
   * agent has stored none.
   */
  downMembers: z.array(z.string()).default([]),
  /** Hash over all the parts: what the amphora reports as its configuration. */
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
