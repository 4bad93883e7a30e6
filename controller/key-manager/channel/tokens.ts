import { createHmac, timingSafeEqual, verify } from 'node:crypto'
import type { TLSSocket } from 'node:tls'
import {
  KEY_CHANNEL_EXPORTED_BYTES,
  KEY_CHANNEL_EXPORTER,
  proofOf,
  subjectSchema,
} from '../../../amphora-agent/protocol/key-manager/key-channel.js'
import { publicKeyOf, tokenKey } from '../../key-channel/keys.js'

/** How long a token is valid. */
export const TOKEN_SECONDS = 3600

/** Tokens of the key channel. They are not stored: whoever has the secret can check them. */
export type ChannelTokens = {
  /** Whether the client at the other end of the connection has the subject's key. */
  isProven: (subject: string, signature: Buffer, socket: TLSSocket) => boolean
  issue: (subject: string) => string
  /** @returns the subject; null for a token that is forged or no longer valid */
  read: (token: string) => string | null
}

/** @param secret the key channel's, 32 bytes @param now milliseconds since 1970 */
export function createChannelTokens(secret: Buffer, now: () => number = Date.now): ChannelTokens {
  const key = tokenKey(secret)
  const macOf = (content: string) => createHmac('sha256', key).update(content).digest()
  return {
    isProven: (subject, signature, socket) => {
      const exported = socket.exportKeyingMaterial(KEY_CHANNEL_EXPORTED_BYTES, KEY_CHANNEL_EXPORTER, Buffer.alloc(0))
      return verify(null, proofOf(subject, exported), publicKeyOf(secret, subject), signature)
    },
    issue: subject => {
      const content = `${subject}.${Math.floor(now() / 1000) + TOKEN_SECONDS}`
      return `${content}.${macOf(content).toString('base64url')}`
    },
    read: token => {
      const [, content = '', subject = '', until = '', mac = ''] =
        /^(([a-z0-9-]{1,36})\.(\d{1,12}))\.([A-Za-z0-9_-]{43})$/.exec(token) ?? []
      const given = Buffer.from(mac, 'base64url')
      const expected = macOf(content)
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null
      return Number(until) * 1000 > now() && subjectSchema.safeParse(subject).success ? subject : null
    },
  }
}
