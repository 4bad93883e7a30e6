import { createHash } from 'node:crypto'

/**
 * The UUID of a row in OVN: always the same for the same thing, so that a change that is repeated after a crash finds
 * what it has made, and a row is never there twice (RFC 9562, version 8).
 * @param instance of this installation
 * @param words what the row is for, such as a table and an ID
 */
export function rowUuid(instance: string, ...words: readonly string[]): string {
  const digest = createHash('sha256')
    .update(JSON.stringify(['krater', instance, ...words]))
    .digest()
  digest[6] = ((digest[6] ?? 0) & 0x0f) | 0x80
  digest[8] = ((digest[8] ?? 0) & 0x3f) | 0x80
  const hex = digest.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join('-')
}

/** Of the logical switch of a network. */
export const switchUuid = (instance: string, networkId: string): string => rowUuid(instance, 'network', networkId)
/** Of the logical router of a router without a gateway. */
export const routerUuid = (instance: string, routerId: string): string => rowUuid(instance, 'router', routerId)
/**
 * Of the logical router of a router with a gateway. It is another row than the one without, so what only a gateway may
 * hold goes with it, whoever puts something there meanwhile.
 */
export const gatewayRouterUuid = (instance: string, routerId: string): string =>
  rowUuid(instance, 'gateway router', routerId)
/** Of the logical router that has a network's VIPs. */
export const balancerRouterUuid = (instance: string, networkId: string): string =>
  rowUuid(instance, 'balancer router', networkId)
