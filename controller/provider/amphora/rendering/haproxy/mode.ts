import type { ListenerNode } from '../../../../load-balancer/tree/tree.js'

/** Whether HAProxy reads what a listener's clients say; other connections are passed on as they are. */
export const isHttp = ({ protocol }: Pick<ListenerNode, 'protocol'>): boolean =>
  protocol === 'HTTP' || protocol === 'PROMETHEUS'
