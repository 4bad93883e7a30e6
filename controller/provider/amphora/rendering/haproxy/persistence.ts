import { createHash } from 'node:crypto'
import type { ListenerNode, MemberNode, PoolNode } from '../../../../load-balancer/tree/tree.js'
import {
  type ConfigurationWord,
  cookieName,
  identifier,
  keywords,
  requestField,
  responseCookie,
  seconds,
} from '../quote.js'
import { isHttp } from './mode.js'

/** How clients come back to their member. At most one of the two is there. */
export type PersistenceModel = {
  /** The name of a cookie of ours, whose value names the server. */
  cookie: ConfigurationWord | null
  stickTable: StickTableModel | null
}

export type StickTableModel = {
  /** What it is keyed by, as HAProxy's type. */
  type: ConfigurationWord
  expire: ConfigurationWord | null
  /** The application's cookie; null when the client's address is the key. */
  cookie: { request: ConfigurationWord; response: ConfigurationWord } | null
}

const NONE: PersistenceModel = { cookie: null, stickTable: null }

/** As older load balancers of this API name it. */
const DEFAULT_COOKIE = 'SRV'

/** Cookies are HTTP's: with a listener that does not speak it, a pool's persistence by cookie has no effect. */
export function persistenceModel(pool: PoolNode, listener: ListenerNode): PersistenceModel {
  const { sessionPersistence } = pool
  if (sessionPersistence === null) return NONE
  const { type, persistenceTimeout } = sessionPersistence
  const what = `Pool ${pool.id}, cookie_name`
  const name = sessionPersistence.cookieName ?? DEFAULT_COOKIE
  const expire =
    persistenceTimeout === null ? null : seconds(persistenceTimeout, `Pool ${pool.id}, persistence_timeout`)
  if (type === 'SOURCE_IP') {
    // an IPv4 address is a key of this type as well
    return { ...NONE, stickTable: { type: keywords('ipv6'), expire, cookie: null } }
  }
  if (!isHttp(listener)) return NONE
  if (type === 'HTTP_COOKIE') return { ...NONE, cookie: cookieName(name, what) }
  const cookie = { request: requestField('req.cook', name, what), response: responseCookie(name, what) }
  return { ...NONE, stickTable: { type: keywords('string len 128'), expire, cookie } }
}

/** What our cookie says of a member: the same on both amphorae of a pair, and nothing that the API knows it by. */
export function cookieValue(member: MemberNode): ConfigurationWord {
  return identifier(createHash('sha256').update(member.id).digest('hex').slice(0, 16), `Member ${member.id}, cookie`)
}
