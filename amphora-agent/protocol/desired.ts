import * as z from 'zod'
import { datagramsSchema } from './datagrams.js'

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

/**
 * The files that HAProxy reads for TLS, by the names in tls.ts. They carry no key: the agent reads what each `ref` leads
 * to from the key manager.
 */
const tlsSchema = z.strictObject({
  files: z.array(
    z.strictObject({
      path: z.string().regex(/^tls\/[0-9a-f-]{36}(\.[a-z-]+)?\.pem$/),
      ref: z.string().max(255),
      kind: z.enum(['certificate', 'authority', 'revocation list']),
      /** SHA-256 over all certificates or lists in DER; null if it is unknown. */
      digest: sha256.nullable(),
    }),
  ),
  /** Certificates from which a listener chooses by the name that a client asks for. The first one is the default. */
  lists: z.array(
    z.strictObject({
      path: z.string().regex(/^tls\/[0-9a-f-]{36}\.list$/),
      listenerId: z.string(),
      certificates: z.array(z.string()).min(1),
    }),
  ),
})

/** What CAs ask for that validate the names of a certificate (RFC 8555, section 8.3; RFC 8737). */
const challengesSchema = z.strictObject({
  http: z.array(
    z.strictObject({
      token: z.string().regex(/^[A-Za-z0-9_-]{1,256}$/),
      keyAuthorization: z.string().regex(/^[A-Za-z0-9_-]{1,256}\.[A-Za-z0-9_-]{43}$/),
    }),
  ),
  tls: z.array(
    z.strictObject({
      /** A host name or an address. */
      identifier: z.string().max(253),
      /** SHA-256 of the key authorization. */
      digest: sha256,
    }),
  ),
})

export const haproxySchema = z.strictObject({
  /** The whole configuration file. It uses the sockets, log line, accounts and files of paths.ts. */
  text: z.string().max(16 * 1024 * 1024),
  sha256,
  /** Hash of the text without server lines and frontend limits: if two hashes are equal, only those differ. */
  skeletonSha256: sha256,
  /** States stored by an older agent lack it. */
  frontends: z.array(frontendSchema).default([]),
  backends: z.array(backendSchema),
  /** Absent for an older agent, which knows neither, and in states stored by it. */
  tls: tlsSchema.optional(),
  challenges: challengesSchema.optional(),
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
  /** UDP and SCTP listeners, beside HAProxy; null if there are none. Absent for an older agent, and in states stored by it. */
  datagrams: datagramsSchema.nullable().optional(),
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
export type TlsPart = z.output<typeof tlsSchema>
export type ChallengesPart = z.output<typeof challengesSchema>
export type HaproxyPart = z.output<typeof haproxySchema>
export type OldWorkerLimits = Desired['oldWorkers']
export type ObjectTable = z.output<typeof objectTableSchema>
export type Desired = z.output<typeof desiredSchema>
