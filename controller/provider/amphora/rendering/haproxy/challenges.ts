import type { ChallengesPart } from '../../../../../amphora-agent/protocol/desired.js'
import { CHALLENGE_PROXY, CHALLENGES_FILE, CHALLENGES_PATH } from '../../../../../amphora-agent/protocol/paths.js'
import { challengeCertificatePath } from '../../../../../amphora-agent/protocol/tls.js'
import { answeredChallenges } from '../../../../load-balancer/tree/answered-challenges.js'
import type { ListenerNode, LoadBalancerTree } from '../../../../load-balancer/tree/tree.js'
import { type ConfigurationWord, identifier, joined, keywords, sample } from '../quote.js'

/** How a listener answers challenges by HTTP, before anything else looks at a request. */
export type HttpAnswers = { path: ConfigurationWord; answer: ConfigurationWord }

/** For listeners of the protocol HTTP. Always there, so that challenges come and go at runtime. */
export const HTTP_ANSWERS: HttpAnswers = {
  path: keywords(CHALLENGES_PATH),
  answer: sample(`path,map_str(${CHALLENGES_FILE})`),
}

/**
 * While a CA validates a name over TLS: HAProxy cannot choose a certificate by the application protocol that a client
 * asks for, so a proxy before each listener looks at the handshake, and hands it to the listener or to the one that
 * answers challenges. Connections stay with the listener's own certificates.
 */
export type TlsChallengeModel = {
  answering: ConfigurationWord
  answeringBind: ConfigurationWord
  answeringServer: ConfigurationWord
  listeners: (Front & { name: ConfigurationWord; server: ConfigurationWord })[]
}

/** What a listener leaves to the proxy before it, which alone sees who connects. */
export type Front = {
  binds: ConfigurationWord[]
  allowedSources: ConfigurationWord[]
  provenFrom: ConfigurationWord[]
  rejectsAll: boolean
  maxconn: ConfigurationWord
}

/** What the agent needs for the challenges that a load balancer answers. */
export function challengesPart(tree: LoadBalancerTree): ChallengesPart {
  const answered = answeredChallenges(tree)
  return {
    http: answered.flatMap(({ type, token, keyAuthorization }) =>
      type === 'http-01' ? [{ token, keyAuthorization }] : [],
    ),
    tls: answered.flatMap(({ type, identifier: name, digest }) =>
      type === 'tls-alpn-01' ? [{ identifier: name, digest }] : [],
    ),
  }
}

/** In the abstract namespace: HAProxy's worker is in a chroot. */
const socketOf = (name: string): string => `abns@krater-${name}`

/** Whether a proxy looks at the handshakes of a listener first. */
export const isLookedAt = (listener: ListenerNode, { tls }: ChallengesPart): boolean =>
  tls.length > 0 && listener.protocol === 'TERMINATED_HTTPS'

/** Where such a listener gets its connections from. */
export const handedOverBind = ({ id }: ListenerNode): ConfigurationWord => keywords(`${socketOf(id)} accept-proxy`)

/** @returns null without challenges over TLS */
export function tlsChallengeModel(
  { tls }: ChallengesPart,
  fronts: readonly { listenerId: string; front: Front }[],
): TlsChallengeModel | null {
  if (tls.length === 0 || fronts.length === 0) return null
  const answering = `${CHALLENGE_PROXY}challenge`
  const certificates = [...new Set(tls.map(({ digest }) => keywords(`crt ${challengeCertificatePath(digest)}`)))]
  return {
    answering: identifier(answering, 'The answers to challenges'),
    answeringBind: joined([
      keywords(`${socketOf('challenge')} ssl`),
      ...certificates,
      keywords('alpn acme-tls/1 ssl-min-ver TLSv1.2'),
    ]),
    answeringServer: keywords(socketOf('challenge')),
    listeners: fronts.map(({ listenerId, front }) => ({
      ...front,
      name: identifier(`${CHALLENGE_PROXY}${listenerId}`, `Listener ${listenerId}, id`),
      server: keywords(`${socketOf(listenerId)} send-proxy-v2`),
    })),
  }
}
