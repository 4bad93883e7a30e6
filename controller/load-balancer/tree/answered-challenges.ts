import type { AcmeChallenge, LoadBalancerTree } from './tree.js'

/**
 * The challenges that a load balancer answers: those over HTTP at its HTTP listeners, else those over TLS at the
 * listeners that terminate it. Pure.
 */
export function answeredChallenges(tree: LoadBalancerTree): AcmeChallenge[] {
  if (!tree.adminStateUp || tree.change === 'delete') return []
  const protocols = new Set(
    tree.listeners.flatMap(({ adminStateUp, change, protocol }) =>
      adminStateUp && change !== 'delete' ? [protocol] : [],
    ),
  )
  const type = protocols.has('HTTP') ? 'http-01' : protocols.has('TERMINATED_HTTPS') ? 'tls-alpn-01' : null
  return tree.challenges.filter(challenge => challenge.type === type)
}
