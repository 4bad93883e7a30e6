import { createHash } from 'node:crypto'
import type { Desired, HaproxyPart, ObjectTable } from '../../../../amphora-agent/protocol/desired.js'
import type { MachineLimits } from '../../../load-balancer/tree/capacity.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../provider.js'
import { flowShortage, renderDatagrams } from './datagrams/datagrams.js'
import type { AmphoraFacts } from './facts.js'
import { connectionShortage, haproxyModel } from './haproxy/haproxy-model.js'
import { placeVips, renderInterfaces } from './keepalived/interfaces.js'
import { keepalivedModel } from './keepalived/keepalived-model.js'
import { address, textOf } from './quote.js'
import { haproxyText, keepalivedText } from './templates.js'
import { isAtLeast } from './version.js'

/** The template uses directives that older versions lack. */
const MIN_HAPROXY_VERSION = [2, 6] as const

/**
 * The desired state of one amphora. Pure and deterministic: the same tree and facts give the same bytes, whatever the
 * order of their rows. `sha256` covers the configuration but neither generation nor fence: if it is equal, nothing
 * needs to change.
 * @throws ProvisioningFault if a value cannot be written to a configuration or an interface is missing
 */
export function renderDesired(tree: LoadBalancerTree, facts: AmphoraFacts): Desired {
  requireHaproxy(facts.haproxyVersion)
  const rendered = renderInterfaces(tree, facts)
  const interfaces = facts.isStandby ? rendered.map(nic => ({ ...nic, vips: [] })) : rendered
  const { haproxy, objects: connected } = renderHaproxy(tree, facts)
  const { datagrams, objects: connectionless } = renderDatagrams(tree, facts.limits)
  const objects = facts.balancesDatagrams ? joined(connected, connectionless) : connected
  const keepalived = renderKeepalived(tree, facts)
  const { oldWorkers } = facts
  const parts = {
    loadBalancerId: tree.id,
    interfaces,
    haproxy,
    ...(facts.balancesDatagrams && { datagrams }),
    keepalived,
    pair: renderPair(facts),
    oldWorkers,
    objects,
  }
  const downMembers = membersOf(tree).flatMap(({ id, isDown }) => (isDown ? [id] : []))
  return { ...parts, downMembers, generation: tree.generation, fence: facts.fence, sha256: fingerprint(parts) }
}

/** Describes what the load balancer needs beyond these limits; null if it fits. Pure. */
export const shortageOf = (tree: LoadBalancerTree, limits: MachineLimits): string | null =>
  connectionShortage(tree, limits) ?? flowShortage(tree, limits)

/** Numbers of one table follow those of the other. */
const joined = (first: ObjectTable, second: ObjectTable): ObjectTable => ({
  listeners: [...first.listeners, ...second.listeners],
  pools: [...first.pools, ...second.pools],
})

const membersOf = (tree: LoadBalancerTree) => tree.pools.flatMap(({ members }) => members)

function renderHaproxy(
  tree: LoadBalancerTree,
  facts: AmphoraFacts,
): { haproxy: HaproxyPart | null; objects: ObjectTable } {
  const rendered = haproxyModel(tree, facts)
  if (rendered === null) return { haproxy: null, objects: { listeners: [], pools: [] } }
  const text = haproxyText(rendered.model)
  const haproxy = {
    text,
    sha256: sha256(text),
    skeletonSha256: sha256(skeletonOf(text)),
    frontends: rendered.frontends,
    backends: rendered.backends,
    ...(facts.readsMaterial && { tls: rendered.tls, challenges: rendered.challenges }),
  }
  return { haproxy, objects: rendered.objects }
}

/** What HAProxy cannot change at runtime: everything but servers and the listeners' connection limits. */
function skeletonOf(text: string): string {
  const start = text.indexOf('\ndefaults\n')
  return text.slice(0, start) + text.slice(start).replaceAll(/^ {4}(server|maxconn) .*\n/gm, '')
}

function renderKeepalived(tree: LoadBalancerTree, facts: AmphoraFacts): Desired['keepalived'] {
  if (tree.topology === 'SINGLE' || facts.isStandby) return null
  if (facts.pair === null) {
    throw new ProvisioningFault('pair-incomplete', 'The amphora is one of a pair, but its VRRP address is unknown.')
  }
  const text = keepalivedText(keepalivedModel(tree, facts.amphoraId, facts.pair, placeVips(tree, facts.interfaces)))
  return { text, sha256: sha256(text) }
}

function renderPair({ pair }: AmphoraFacts): Desired['pair'] {
  if (pair === null) return null
  const what = 'The VRRP address'
  const peers = pair.peers.map(peer => textOf(address(peer.address, `${what} of a peer`))).sort()
  return { address: textOf(address(pair.vrrpAddress, what)), peers }
}

function requireHaproxy(version: string): void {
  if (isAtLeast(version, MIN_HAPROXY_VERSION)) return
  throw new ProvisioningFault(
    'haproxy-too-old',
    `The amphora runs HAProxy ${version}; it needs ${MIN_HAPROXY_VERSION.join('.')} or newer.`,
  )
}

/**
 * Hashes every part, with HAProxy's text represented by its hash. This program builds all of the objects, so their keys
 * are always in the same order.
 */
function fingerprint({ haproxy, ...parts }: Omit<Desired, 'generation' | 'fence' | 'downMembers' | 'sha256'>): string {
  const { text: _, ...rest } = haproxy ?? { text: '' }
  return sha256(JSON.stringify({ ...parts, haproxy: haproxy === null ? null : rest }))
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
