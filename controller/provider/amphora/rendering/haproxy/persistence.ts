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

/** Session persistence of a backend. At most one of the two is set. */
export type PersistenceModel = {
  /** Name of the cookie that HAProxy inserts; its value identifies the server. */
  cookie: ConfigurationWord | null
  stickTable: StickTableModel | null
}

export type StickTableModel = {
  /** HAProxy's type of the key. */
  type: ConfigurationWord
  expire: ConfigurationWord | null
  /** The application's cookie; null when the client's address is the key. */
  cookie: { request: ConfigurationWord; response: ConfigurationWord } | null
}

const NONE: PersistenceModel = { cookie: null, stickTable: null }

/** Octavia's name for this cookie, used when the pool sets none. */
const DEFAULT_COOKIE = 'SRV'

/** Persistence by cookie has no effect for a listener that is not HTTP. */
export function persistenceModel(pool: PoolNode, listener: ListenerNode): PersistenceModel {
  const { sessionPersistence } = pool
  if (sessionPersistence === null) return NONE
  const { type, persistenceTimeout } = sessionPersistence
  const what = `Pool ${pool.id}, cookie_name`
  const name = sessionPersistence.cookieName ?? DEFAULT_COOKIE
  const expire =
    persistenceTimeout === null ? null : seconds(persistenceTimeout, `Pool ${pool.id}, persistence_timeout`)
  if (type === 'SOURCE_IP') {
    // This type also holds IPv4 addresses.
    return { ...NONE, stickTable: { type: keywords('ipv6'), expire, cookie: null } }
  }
  if (!isHttp(listener)) return NONE
  if (type === 'HTTP_COOKIE') return { ...NONE, cookie: cookieName(name, what) }
  const cookie = { request: requestField('req.cook', name, what), response: responseCookie(name, what) }
  return { ...NONE, stickTable: { type: keywords('string len 128'), expire, cookie } }
}

/** The cookie's value for a member: equal on both amphorae of a pair, and without revealing the member's id. */
export function cookieValue(member: MemberNode): ConfigurationWord {
  return identifier(createHash('sha256').update(member.id).digest('hex').slice(0, 16), `Member ${member.id}, cookie`)
}
