import type { ListenerNode } from '../../../../load-balancer/tree/tree.js'

/** True if HAProxy parses the listener's traffic as HTTP, false if it relays TCP. */
export const isHttp = ({ protocol }: Pick<ListenerNode, 'protocol'>): boolean =>
  protocol === 'HTTP' || protocol === 'TERMINATED_HTTPS' || protocol === 'PROMETHEUS'
