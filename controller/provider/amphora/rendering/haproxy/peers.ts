import { HAPROXY_PEERS_PORT } from '../../../../../amphora-agent/protocol/paths.js'
import type { AmphoraFacts } from '../facts.js'
import { type ConfigurationWord, endpoint, identifier } from '../quote.js'

/** The `peers` section: the HAProxys that share stick tables. */
export type PeersModel = {
  /** By this name, HAProxy recognises itself among the peers. */
  ownName: ConfigurationWord
  /** Itself first: through this entry, an old worker passes its tables to the new one. */
  peers: { name: ConfigurationWord; endpoint: ConfigurationWord }[]
}

/**
 * A single amphora peers with itself on the loopback address, which members may not use. The amphorae of a pair
 * also peer with each other, between their VRRP addresses. HAProxy identifies a peer only by its name: the
 * amphora's id, visible only to those who may read the load balancer's history. A worker passes its tables on
 * once it has run for five seconds.
 */
export function peersModel({ amphoraId, pair }: AmphoraFacts): PeersModel {
  const others = (pair?.peers ?? []).toSorted((a, b) => (a.amphoraId < b.amphoraId ? -1 : 1))
  const all = [{ amphoraId, address: pair?.vrrpAddress ?? '127.0.0.1' }, ...others]
  return {
    ownName: identifier(amphoraId, 'Amphora id'),
    peers: all.map(peer => ({
      name: identifier(peer.amphoraId, 'Amphora id'),
      endpoint: endpoint(peer.address, HAPROXY_PEERS_PORT, 'The VRRP address'),
    })),
  }
}
