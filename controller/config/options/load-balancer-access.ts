import { isIP } from 'node:net'
import { z } from 'zod'
import { flag, listOf } from './load-balancer-options.js'

/** An address, or a network as `address/prefix length`. */
const network = z.string().refine(
  text => {
    const [address = '', length, ...rest] = text.split('/')
    const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1
    return (
      bits > 0 && rest.length === 0 && (length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= bits))
    )
  },
  { error: 'an address, or a network such as 10.0.0.0/8' },
)

export const trustedProxies = listOf(network)
  .default([])
  .describe('Addresses and networks of proxies whose X-Forwarded-* headers are believed')

/** How clients reach the load-balancing API, and whose roles count. */
export const loadBalancerAccess = {
  mount_prefix: z
    .string()
    .regex(/^(\/[\w.~-]+)+\/?$/, 'must be a path such as /load-balancer/')
    .transform(path => path.replace(/\/$/, ''))
    .optional()
    .describe('Path under which a web server mounts the API; what comes without it is answered as well'),
  trusted_proxies: trustedProxies,
  strict_roles: flag
    .default(false)
    .describe(
      'Whether only the newer rules count: load-balancer_observer and load-balancer_member grant nothing without reader or member',
    ),
  system_scope: flag
    .default(false)
    .describe('Whether tokens of the whole system count: admin there may do everything, reader may see everything'),
}
