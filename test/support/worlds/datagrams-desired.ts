import type {
  DatagramListener,
  DatagramMember,
  DatagramMonitor,
  DatagramPool,
} from '../../../amphora-agent/protocol/datagrams.js'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { desire } from './amphora-desired.js'

/** An id of a kind of object; the last digits are its number. */
const idOf = (kind: string, number: number): string =>
  `${kind}0000000-0000-4000-8000-${String(number).padStart(12, '0')}`

export const listenerId = (number: number): string => idOf('1', number)
export const poolId = (number: number): string => idOf('2', number)
export const memberId = (number: number): string => idOf('3', number)

/** A member at 10.66.1.x:5300, or fd66:1::x if the number is above 100. */
export function datagramMember(number: number, changes: Partial<DatagramMember> = {}): DatagramMember {
  const address = number > 100 ? `fd66:1::${number}` : `10.66.1.${number}`
  const place = { address, port: 5300 }
  return { id: memberId(number), ...place, weight: 1, backup: false, disabled: false, monitor: place, ...changes }
}

const UNMONITORED: DatagramMonitor | null = null

export const datagramPool = (number: number, members: DatagramMember[], changes: Partial<DatagramPool> = {}) => ({
  id: poolId(number),
  algorithm: 'ROUND_ROBIN' as const,
  persistence: null,
  monitor: UNMONITORED,
  members,
  ...changes,
})

export const datagramListener = (number: number, changes: Partial<DatagramListener> = {}): DatagramListener => ({
  id: listenerId(number),
  protocol: 'udp',
  port: 53,
  limit: null,
  allowed: null,
  idleSeconds: 50,
  poolId: poolId(1),
  ...changes,
})

/** The desired state of a load balancer with UDP or SCTP listeners only, unless changes say more. */
export function desireDatagrams(
  generation: number,
  { listeners, pools }: { listeners: DatagramListener[]; pools: DatagramPool[] },
  { interfaces = [], ...changes }: Partial<Desired>,
): Desired {
  const vips = interfaces.flatMap(iface => iface.vips.map(({ address }) => address))
  return desire({
    generation,
    changes: {
      interfaces,
      haproxy: null,
      datagrams: { vips, listeners, pools },
      objects: {
        listeners: listeners.map(({ id }) => id),
        pools: listeners.flatMap(listener =>
          pools
            .filter(({ id }) => id === listener.poolId)
            .map(pool => ({ poolId: pool.id, listenerId: listener.id, members: pool.members.map(({ id }) => id) })),
        ),
      },
      ...changes,
    },
  })
}
