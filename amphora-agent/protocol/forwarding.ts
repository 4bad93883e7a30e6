import * as z from 'zod'

const port = z.int().min(1).max(65535)

/** What the forwarder of an enrolled host passes on: the port that its amphora sends to, and where that leads. */
export const forwardingSchema = z.strictObject({
  /** Every heartbeat goes to each controller, and a connection to the first that accepts it. IP addresses, without brackets. */
  controllers: z
    .array(z.union([z.ipv4(), z.ipv6()]))
    .min(1)
    .max(64),
  heartbeats: port,
  keyChannel: port,
})

export type Forwarding = z.output<typeof forwardingSchema>

/** The file that forward.pl reads. Pure. */
export const forwarderLines = ({ controllers, heartbeats, keyChannel }: Forwarding): string =>
  [
    ...controllers.map(host => `udp ${heartbeats} ${host} ${heartbeats}\n`),
    ...controllers.map(host => `tcp ${keyChannel} ${host} ${keyChannel}\n`),
  ].join('')
