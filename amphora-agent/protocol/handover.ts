import * as z from 'zod'

const address = z.union([z.ipv4(), z.ipv6()])
const cidr = z.union([z.cidrv4(), z.cidrv6()])

/**
 * One amphora's part in moving VIPs to another amphora without breaking a connection. Connections stay with the
 * amphora that accepted them: packets that reach the other one are forwarded through a tunnel between the two. Both
 * parts are set up before the VIP moves.
 */
export const handoverSchema = z.strictObject({
  role: z.enum(['leaving', 'taking-over']),
  /** The ends of the tunnel: the addresses of the two on the VIP's network. */
  own: address,
  peer: address,
  interface: z.string().regex(/^[a-z][a-z0-9-]{0,14}$/),
  vips: z.array(z.strictObject({ address, subnet: cidr, gateway: address.nullable() })).min(1),
  /** The agent removes its part by itself after this time, even if the controller fails. */
  seconds: z.int().min(1).max(7_200),
})

export type Handover = z.output<typeof handoverSchema>

/** The progress of an amphora that drains its connections. */
export type AmphoraDrain = {
  /** HAProxy has exited: all connections were closed, or the time limit was reached. */
  ended: boolean
  /** Requests and connections still open at the limit, which were closed. */
  cut: number
}

/**
 * Whether an amphora that takes over has the other one's stick tables: there are none, it has all, or it continues
 * without.
 */
export type TablesTaken = 'none' | 'all' | 'missing'
