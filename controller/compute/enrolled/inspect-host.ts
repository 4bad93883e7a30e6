import type { Database } from '../../database/connection.js'
import type { NetworkDriver } from '../../network/driver.js'
import type { Inspection } from '../driver.js'
import type { LookAround } from '../host-agents.js'
import { enrolledHosts } from './hosts.js'

/**
 * Whether an enrolled host is still on the networks of its load balancer, as another machine there sees it: the way to its
 * agent says nothing about that. If nobody at all answers on a network, it is this host that sees nothing.
 * @returns null if that cannot be told
 */
export async function inspectHost(
  { database, network, lookAround }: { database: Database; network: NetworkDriver; lookAround: LookAround },
  amphoraId: string,
): Promise<Inspection | null> {
  if (lookAround === null) return null
  try {
    const hosts = (await enrolledHosts(database)).filter(({ state }) => state === 'in use')
    const ownOf = (one: (typeof hosts)[number]) => Object.values(one.plugged).flatMap(({ own }) => own)
    const host = hosts.find(one => one.amphoraId === amphoraId)
    // Its first port is on the network of the VIP.
    const [first] = host === undefined ? [] : ownOf(host)
    if (host === undefined || first === undefined) return null
    const { subnetId, address } = first
    const [subnet] = await network.subnets([subnetId])
    const others = hosts.filter(one => one !== host).flatMap(ownOf)
    const witnesses = [
      ...others.filter(other => other.subnetId === subnetId).map(other => other.address),
      ...(subnet === undefined || subnet.gatewayIp === null ? [] : [subnet.gatewayIp]),
    ]
    return judgeAnswers(address, await lookAround(subnetId, [address, ...witnesses.slice(0, MAX_WITNESSES)]))
  } catch {
    // Such as a subnet without a free address to look from.
    return null
  }
}

const MAX_WITNESSES = 4

/** Pure. @param answering of the address and its witnesses, those that answer */
export function judgeAnswers(address: string, answering: readonly string[]): Inspection | null {
  if (answering.includes(address)) {
    return { serves: true, forwards: true, finding: `${address} answers on the load balancer's network` }
  }
  const [witness] = answering
  if (witness === undefined) return null
  const finding = `${address} does not answer on the load balancer's network, but ${witness} does`
  return { serves: false, forwards: false, finding }
}
