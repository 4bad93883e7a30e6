import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Answers, NetworkDriver } from '../../network/driver.js'
import type { Inspection } from '../driver.js'
import type { LookAround } from '../host-agents.js'
import { enrolledHosts } from './hosts.js'

/**
 * Whether an enrolled host is still on the network of its load balancer's VIP, as another machine there sees it: the way to
 * its agent says nothing about that. If nobody at all answers there, it is this host that sees nothing.
 * @returns null if that cannot be told
 */
export async function inspectHost(
  { database, network, lookAround }: { database: Database; network: NetworkDriver; lookAround: LookAround },
  amphoraId: string,
): Promise<Inspection | null> {
  if (lookAround === null) return null
  try {
    const [hosts, vipPort] = await Promise.all([enrolledHosts(database), portOfVip(database, amphoraId)])
    const inUse = hosts.filter(({ state }) => state === 'in use')
    const host = inUse.find(one => one.amphoraId === amphoraId)
    const [first] = host?.plugged[vipPort ?? '']?.own ?? []
    if (first === undefined) return null
    const { subnetId, address } = first
    const [subnet] = await network.subnets([subnetId])
    const others = inUse.filter(one => one !== host).flatMap(({ plugged }) => Object.values(plugged))
    const witnesses = [
      ...others.flatMap(({ own }) => own.filter(other => other.subnetId === subnetId).map(other => other.address)),
      ...(subnet === undefined || subnet.gatewayIp === null ? [] : [subnet.gatewayIp]),
    ]
    const answers = await lookAround(subnetId, [address, ...witnesses.slice(0, MAX_WITNESSES)])
    return answers === null ? null : judgeAnswers(address, answers)
  } catch {
    // Such as a subnet without a free address to look from.
    return null
  }
}

const MAX_WITNESSES = 4

/** Its port on the network of the VIP. */
async function portOfVip(database: Database, amphoraId: string): Promise<string | null> {
  const row = await maybeOne(
    database,
    sql<{ portId: string | null }>`SELECT vrrp_port_id AS "portId" FROM amphora WHERE id = ${amphoraId}`,
  )
  return row?.portId ?? null
}

/**
 * An answer proves nothing but that the kernel runs: HAProxy may have ended. Silence proves that nothing is served. Pure.
 * @param answers of the address and its witnesses
 */
export function judgeAnswers(address: string, answers: Answers): Inspection | null {
  const [witness] = [...answers].find(([, answer]) => answer === 'answers') ?? []
  if (witness === undefined || answers.get(address) !== 'silent') return null
  const finding = `${address} does not answer on the load balancer's network, but ${witness} does`
  return { serves: false, forwards: false, finding }
}
