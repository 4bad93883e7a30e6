import type { Knex } from 'knex'
import { execute, many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { contains, parseCidr } from '../../addresses.js'
import { AddressTaken, InvalidPortRequest, NoAddressLeft, ShareExhausted } from '../../driver.js'
import { placeAddress } from '../../local/ports.js'
import type { SharedAddresses } from '../../local/shared-addresses.js'
import { type SubnetFacts, subnetFacts } from '../../local/subnets.js'
import { badRequest, conflict, invalidInput, NeutronError, notFound } from '../neutron-error.js'

/** One address of a request: its subnet, the address itself, or both. */
export type RequestedFixedIp = { subnet_id?: string | undefined; ip_address?: string | undefined }

type NewPort = { id: string; networkId: string; projectId: string }

/**
 * Gives a new port the requested addresses; without a request, one of each IP version the network has.
 * @throws NeutronError 400 for an invalid address, 404 for a missing subnet, 409 if no such address is free
 */
export async function placeFixedIps(
  trx: Knex,
  port: NewPort,
  desired: readonly RequestedFixedIp[] | undefined,
  rules: SharedAddresses,
): Promise<void> {
  const subnets = await subnetsOf(trx, port.networkId)
  if (desired === undefined) {
    for (const version of [4, 6] as const) {
      const candidates = subnets.filter(subnet => parseCidr(subnet.cidr)!.version === version)
      if (candidates.length > 0) await placeInFirst(trx, port, candidates, rules)
    }
    return
  }
  // Specific addresses first, so that automatic allocation cannot take them.
  const exactFirst = [...desired].sort(
    (a, b) => Number(b.ip_address !== undefined) - Number(a.ip_address !== undefined),
  )
  for (const fixedIp of exactFirst) await placeOne(trx, port, subnets, fixedIp, rules)
}

/**
 * Gives a new port one IPv4 address: the requested one, or any free one of the network.
 * @throws NeutronError as placeFixedIps; 400 if the network has no IPv4 subnet
 */
export async function placeIpv4(
  trx: Knex,
  port: NewPort,
  desired: RequestedFixedIp | undefined,
  rules: SharedAddresses,
): Promise<void> {
  const subnets = (await subnetsOf(trx, port.networkId)).filter(({ cidr }) => parseCidr(cidr)!.version === 4)
  if (subnets.length === 0) {
    throw badRequest('floatingip', `Network ${port.networkId} does not contain any IPv4 subnet`)
  }
  if (desired === undefined) await placeInFirst(trx, port, subnets, rules)
  else await placeOne(trx, port, subnets, desired, rules)
}

type FixedIp = { subnet_id: string; ip_address: string }

/** Replaces a port's addresses. Never releases those that stay, not even for a moment. */
export async function replaceFixedIps(
  trx: Knex,
  port: NewPort & { fixedIps: readonly FixedIp[] },
  desired: readonly RequestedFixedIp[],
  rules: SharedAddresses,
): Promise<void> {
  const { gone, added } = compareFixedIps(port.fixedIps, desired)
  for (const { subnet_id, ip_address } of gone) {
    await execute(
      trx,
      sql`DELETE FROM fixed_ip WHERE port_id = ${port.id} AND subnet_id = ${subnet_id} AND address = ${ip_address}`,
    )
  }
  await placeFixedIps(trx, port, added, rules)
}

/** What a port loses and gains when it gets the desired addresses. A desired one that leaves a part open keeps what it has. Pure. */
export function compareFixedIps(
  present: readonly FixedIp[],
  desired: readonly RequestedFixedIp[],
): { gone: FixedIp[]; added: RequestedFixedIp[] } {
  const gone = [...present]
  const keep = (matches: (fixedIp: FixedIp) => boolean) => {
    const index = gone.findIndex(matches)
    return index >= 0 && gone.splice(index, 1).length === 1
  }
  const added = desired
    .filter(
      ({ subnet_id, ip_address }) =>
        ip_address === undefined ||
        !keep(fixedIp => fixedIp.ip_address === ip_address && fixedIp.subnet_id === (subnet_id ?? fixedIp.subnet_id)),
    )
    .filter(
      ({ subnet_id, ip_address }) =>
        ip_address !== undefined || !keep(fixedIp => fixedIp.subnet_id === (subnet_id ?? fixedIp.subnet_id)),
    )
  return { gone, added }
}

async function subnetsOf(trx: Knex, networkId: string): Promise<SubnetFacts[]> {
  const rows = await many(
    trx,
    sql<{ id: string }>`SELECT id FROM subnet WHERE network_id = ${networkId} ORDER BY created_at, id`,
  )
  const facts = await subnetFacts(
    trx,
    rows.map(({ id }) => id),
  )
  return rows.flatMap(({ id }) => facts.get(id) ?? [])
}

async function placeInFirst(
  trx: Knex,
  port: NewPort,
  candidates: readonly SubnetFacts[],
  rules: SharedAddresses,
): Promise<void> {
  let refusal = new NoAddressLeft()
  for (const subnet of candidates) {
    try {
      return await placeAddress(trx, port, subnet, undefined, rules)
    } catch (error) {
      if (!(error instanceof NoAddressLeft)) throw error
      refusal = error
    }
  }
  throw noAddressLeft(port.networkId, refusal)
}

async function placeOne(
  trx: Knex,
  port: NewPort,
  subnets: readonly SubnetFacts[],
  { subnet_id, ip_address }: RequestedFixedIp,
  rules: SharedAddresses,
): Promise<void> {
  if (subnet_id === undefined && ip_address === undefined) {
    if (subnets.length === 0) throw invalidInput('the network has no subnet')
    return placeInFirst(trx, port, subnets, rules)
  }
  const subnet = subnets.find(({ id, cidr }) =>
    subnet_id === undefined ? contains(parseCidr(cidr)!, ip_address!) : id === subnet_id,
  )
  if (subnet === undefined) {
    if (subnet_id === undefined) {
      throw new NeutronError(
        400,
        'InvalidIpForNetwork',
        `IP address ${ip_address} is not a valid IP for any of the subnets on the specified network.`,
      )
    }
    if ((await subnetFacts(trx, [subnet_id])).size === 0) throw notFound('subnet', subnet_id)
    throw invalidInput(
      `Failed to create port on network ${port.networkId}, because fixed_ips included invalid subnet ${subnet_id}`,
    )
  }
  try {
    await placeAddress(trx, port, subnet, ip_address, rules)
  } catch (error) {
    if (error instanceof InvalidPortRequest) throw invalidAddress(error.message)
    if (error instanceof NoAddressLeft) throw noAddressLeft(port.networkId, error)
    if (error instanceof AddressTaken) throw conflict('IpAddressAlreadyAllocated', error.message)
    throw error
  }
}

const invalidAddress = (message: string) => new NeutronError(400, 'InvalidIpForSubnet', message)
const noAddressLeft = (networkId: string, reason: NoAddressLeft) =>
  conflict(
    'IpAddressGenerationFailure',
    reason instanceof ShareExhausted ? reason.message : `No more IP addresses available on network ${networkId}.`,
  )
