import { randomUUID } from 'node:crypto'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import type { AmphoraFacts } from '../../../controller/provider/amphora/rendering/facts.js'
import { aVipInterface, someFacts, uuid } from '../../golden/models.js'
import { at, idIn, type Json, type Reply } from '../clients/json-answers.js'
import { SUBNET, type TestApi } from '../clients/load-balancer-api.js'

/** How an object gets its attributes: nested in a new load balancer, by a POST, or by a PUT. */
export type Way = 'nested' | 'create' | 'update'

export type Sent = { reply: Reply; tree: LoadBalancerTree | null }

type Kind = 'loadbalancers' | 'listeners' | 'pools' | 'members' | 'healthmonitors' | 'l7policies' | 'rules'

const RULE = { type: 'PATH', compare_type: 'STARTS_WITH', value: '/api' }
const MEMBER = { address: '192.0.2.10', protocol_port: 80 }
const MONITOR = { type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 }
const POOL = { protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }

/** Attributes by kind of object. */
type Around = Readonly<Record<string, Json>>

/**
 * A load balancer of the amphora provider with one object of each kind; one of them has the given attributes, and all of
 * them have those that the others need around it.
 */
export function wholeTree(collection: string, given: Json, around: Around = {}): Json {
  const to = (kind: Kind, object: Json): Json => ({
    ...object,
    ...around[kind],
    ...(kind === collection ? given : {}),
  })
  const pool = to('pools', {
    name: 'pool',
    ...POOL,
    members: [to('members', MEMBER)],
    healthmonitor: to('healthmonitors', MONITOR),
  })
  const policy = to('l7policies', { action: 'REJECT', rules: [to('rules', RULE)] })
  return to('loadbalancers', {
    provider: 'amphora',
    vip_subnet_id: SUBNET,
    vip_address: '203.0.113.10',
    listeners: [to('listeners', { protocol: 'HTTP', protocol_port: 80, default_pool: pool, l7policies: [policy] })],
  })
}

/**
 * A load balancer whose one object of a kind has the given attributes, and all that another object of that kind
 * needs.
 * @throws Error when the API refuses them
 */
export async function makeScene(api: TestApi, collection: string, given: Json, token: string, around: Around = {}) {
  const ask = (method: string, path: string, body?: object) => api.ask(method, `/v2/lbaas/${path}`, body, token)
  const make = async (path: string, key: string, body: object): Promise<string> => {
    const reply = await ask('POST', path, { [key]: body })
    if (reply.status !== 201) throw new Error(`${path} ${JSON.stringify(body)}: ${reply.status} ${reply.text}`)
    return idIn(reply, key)
  }
  const first = await ask('POST', 'loadbalancers', { loadbalancer: wholeTree(collection, given, around) })
  if (first.status !== 201) throw new Error(`${collection} ${JSON.stringify(given)}: ${first.status} ${first.text}`)
  const id = (...path: (string | number)[]) => String(at(first.body, 'loadbalancer', ...path, 'id'))
  const lb = id()
  const [listener, pool, policy] = [id('listeners', 0), id('pools', 0), id('listeners', 0, 'l7policies', 0)]
  const bare = await make('listeners', 'listener', { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 81 })
  const other = await make('listeners', 'listener', { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 82 })
  const unwatched = await make('pools', 'pool', { listener_id: other, ...POOL, members: [MEMBER] })
  /**
   * Where another object of each kind is created, the attributes that it needs, and the path of the existing
   * one.
   */
  const places: Readonly<Record<string, Place>> = {
    loadbalancers: { path: 'loadbalancers', key: 'loadbalancer', needs: {}, present: `loadbalancers/${lb}` },
    listeners: {
      path: 'listeners',
      key: 'listener',
      needs: { loadbalancer_id: lb, protocol: 'HTTP', protocol_port: 83 },
      present: `listeners/${listener}`,
    },
    pools: { path: 'pools', key: 'pool', needs: { listener_id: bare, ...POOL }, present: `pools/${pool}` },
    members: {
      path: `pools/${pool}/members`,
      key: 'member',
      needs: { ...MEMBER, protocol_port: 81 },
      present: `pools/${pool}/members/${id('pools', 0, 'members', 0)}`,
    },
    healthmonitors: {
      path: 'healthmonitors',
      key: 'healthmonitor',
      needs: { pool_id: unwatched, ...MONITOR },
      present: `healthmonitors/${id('pools', 0, 'healthmonitor')}`,
    },
    l7policies: {
      path: 'l7policies',
      key: 'l7policy',
      needs: { listener_id: listener, action: 'REJECT', rules: [RULE] },
      present: `l7policies/${policy}`,
    },
    rules: {
      path: `l7policies/${policy}/rules`,
      key: 'rule',
      needs: RULE,
      present: `l7policies/${policy}/rules/${id('listeners', 0, 'l7policies', 0, 'rules', 0)}`,
    },
    ...(await sharedPlaces(api, collection)),
  }
  const place = places[collection]
  if (place === undefined) throw new Error(`There is no place for ${collection}`)

  const forget = async (reply: Reply): Promise<void> => {
    if (collection === 'pools') {
      await api
        .database('listener')
        .where({ default_pool_id: idIn(reply, 'pool') })
        .update({ default_pool_id: null })
    }
    const { table, key } = RESOURCES[collection]?.resource ?? {}
    if (table === undefined || key === undefined) throw new Error(`There is no table of ${collection}`)
    await api
      .database(table)
      .where({ [key.column]: at(reply.body, place.key, key.column) })
      .delete()
  }

  return {
    /** Sends attributes in one of the ways; the tree is the provider's view after it, null after a refusal. */
    send: async (way: Way, attributes: Json): Promise<Sent> => {
      if (way === 'nested') {
        const reply = await ask('POST', 'loadbalancers', { loadbalancer: wholeTree(collection, attributes, around) })
        return { reply, tree: reply.status === 201 ? await readTree(api.database, idIn(reply, 'loadbalancer')) : null }
      }
      const reply =
        way === 'create'
          ? await ask('POST', place.path, { [place.key]: { ...place.needs, ...around[collection], ...attributes } })
          : await ask('PUT', place.present, { [place.key]: attributes })
      if (reply.status >= 300) return { reply, tree: null }
      const tree = await readTree(api.database, lb)
      if (way === 'create') await forget(reply)
      return { reply, tree }
    },
  }
}

type Place = { path: string; key: string; needs: Json; present: string }

/** The same for objects that administrators create for all projects. */
async function sharedPlaces(api: TestApi, collection: string): Promise<Record<string, Place>> {
  const [name, profile] = [randomUUID(), randomUUID()]
  const profileOf = (data: string): Json => ({ name: 'p', provider_name: 'amphora', [data]: '{}' })
  const rows = async (table: string, row: Json) => api.database(table).insert(row)
  switch (collection) {
    case 'flavorprofiles': {
      const needs = profileOf('flavor_data')
      await rows('flavor_profile', { id: profile, ...needs })
      return { flavorprofiles: { path: collection, key: 'flavorprofile', needs, present: `${collection}/${profile}` } }
    }
    case 'availabilityzoneprofiles': {
      const needs = profileOf('availability_zone_data')
      await rows('availability_zone_profile', { id: profile, ...needs })
      const key = 'availability_zone_profile'
      return { availabilityzoneprofiles: { path: collection, key, needs, present: `${collection}/${profile}` } }
    }
    case 'flavors': {
      await rows('flavor_profile', { id: profile, ...profileOf('flavor_data') })
      await rows('flavor', { id: name, name, flavor_profile_id: profile })
      const needs = { name: 'another', flavor_profile_id: profile }
      return { flavors: { path: collection, key: 'flavor', needs, present: `flavors/${name}` } }
    }
    case 'availabilityzones': {
      await rows('availability_zone_profile', { id: profile, ...profileOf('availability_zone_data') })
      await rows('availability_zone', { name, availability_zone_profile_id: profile })
      const needs = { name: 'another', availability_zone_profile_id: profile }
      return {
        availabilityzones: { path: collection, key: 'availability_zone', needs, present: `${collection}/${name}` },
      }
    }
    default:
      return {}
  }
}

const ID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g

/** The same tree with ids and server numbers in order of appearance, so that trees of equal structure are equal. */
export function withPlainIds(tree: LoadBalancerTree): LoadBalancerTree {
  const ids = new Map<string, string>()
  const plain: LoadBalancerTree = JSON.parse(
    JSON.stringify(tree).replaceAll(ID, id => {
      const known = ids.get(id) ?? uuid(0, ids.size + 1)
      ids.set(id, known)
      return known
    }),
  )
  for (const pool of plain.pools) for (const [index, member] of pool.members.entries()) member.serverNumber = index + 1
  return plain
}

/** One amphora of a pair, with an interface on each VIP's subnet. */
export function factsFor(tree: LoadBalancerTree): AmphoraFacts {
  const nic = aVipInterface()
  const isIpv6 = tree.vip.address.includes(':')
  const own = isIpv6 ? ['2001:db8:1::21', '2001:db8:1::22'] : ['203.0.113.21', '203.0.113.22']
  const subnets = [tree.vip, ...tree.additionalVips].map(({ address, subnetId }) => ({
    id: subnetId ?? '',
    networkId: uuid(8, 1),
    projectId: '',
    ipVersion: address.includes(':') ? (6 as const) : (4 as const),
    cidr: address.includes(':') ? '::/0' : '0.0.0.0/0',
    gatewayIp: address.includes(':') ? '2001:db8:1::1' : '203.0.113.1',
    hostRoutes: [],
    overlapsManagement: false,
  }))
  const [vrrpAddress = '', peer = ''] = own
  return someFacts({
    interfaces: [
      {
        ...nic,
        subnets,
        port: { ...nic.port, fixedIps: [{ subnetId: tree.vip.subnetId ?? '', address: vrrpAddress }] },
      },
    ],
    pair: { priority: 100, vrrpAddress, peers: [{ amphoraId: uuid(6, 2), address: peer }] },
  })
}
