import { HAPROXY_PEERS_PORT } from '../../../../../amphora-agent/protocol/paths.js'
import type { AmphoraFacts } from '../facts.js'
import { type ConfigurationWord, endpoint, identifier } from '../quote.js'

/** Whom HAProxy shares its stick tables with. */
export type PeersModel = {
  /** By its own name HAProxy finds itself among them. */
  ownName: ConfigurationWord
  /** Itself first: an old worker hands its tables over to the new one that way. */
  peers: { name: ConfigurationWord; endpoint: ConfigurationWord }[]
}

/**
 * A single amphora speaks with itself, on the loopback address, where no member may be; one of a pair with the others too, between their VRRP
 * addresses. HAProxy knows a peer by its name alone: the amphora's id, which only those learn who may read the load balancer's history. A worker
 * teaches its successor once it has run for five seconds.
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
