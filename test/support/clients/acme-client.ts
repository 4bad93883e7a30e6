import { createHash, createHmac, generateKeyPairSync, type JsonWebKey, type KeyObject, sign } from 'node:crypto'
import type { Json } from './json-answers.js'

export type AcmeKey = { alg: string; privateKey: KeyObject; jwk: JsonWebKey; thumbprint: string }

const PAIRS = {
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: () => generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  ES512: () => generateKeyPairSync('ec', { namedCurve: 'P-521' }),
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  EdDSA: () => generateKeyPairSync('ed25519'),
}

export function acmeKey(alg: keyof typeof PAIRS = 'ES256'): AcmeKey {
  const { privateKey, publicKey } = PAIRS[alg]()
  const jwk = publicKey.export({ format: 'jwk' })
  return { alg, privateKey, jwk, thumbprint: thumbprintOf(jwk) }
}

/** RFC 7638: the required members in the order of their names. */
function thumbprintOf(jwk: JsonWebKey): string {
  const members = ['crv', 'e', 'kty', 'n', 'x', 'y'].flatMap(name => (name in jwk ? [[name, jwk[name]]] : []))
  return createHash('sha256')
    .update(JSON.stringify(Object.fromEntries(members)))
    .digest('base64url')
}

const HASHES: Readonly<Record<string, string | null>> = {
  ES256: 'sha256',
  ES384: 'sha384',
  ES512: 'sha512',
  RS256: 'sha256',
}

const encode = (value: unknown): string =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')

/** A flattened JWS. @param payload null for an empty one */
export function jwsOf(header: object, payload: unknown, { alg, privateKey }: Pick<AcmeKey, 'alg' | 'privateKey'>) {
  const parts = { protected: encode(header), payload: payload === null ? '' : encode(payload) }
  const input = Buffer.from(`${parts.protected}.${parts.payload}`)
  const signature = sign(HASHES[alg] ?? null, input, { key: privateKey, dsaEncoding: 'ieee-p1363' })
  return { ...parts, signature: signature.toString('base64url') }
}

/** An external account binding of a key. */
export function bindingOf(keyId: string, hmacKey: string, url: string, jwk: JsonWebKey) {
  const parts = { protected: encode({ alg: 'HS256', kid: keyId, url }), payload: encode(jwk) }
  const mac = createHmac('sha256', Buffer.from(hmacKey, 'base64url')).update(`${parts.protected}.${parts.payload}`)
  return { ...parts, signature: mac.digest('base64url') }
}

export type AcmeReply = { status: number; headers: Headers; text: string; body: Json }

export type SendOptions = {
  key?: AcmeKey
  /** Null sends the key itself. Default: the client's account. */
  kid?: string | null
  /** Members of the protected header that replace those of an honest client. */
  header?: Record<string, unknown>
  type?: string
  /** The body instead of the JWS. */
  raw?: string
  /** Where to send it, instead of where the URL says. */
  through?: string
}

/** An ACME client that tells the truth unless a test says otherwise. */
export class AcmeClient {
  key: AcmeKey
  account: string | null = null
  #nonce: string | null = null

  constructor(
    readonly base: string,
    key: AcmeKey,
  ) {
    this.key = key
  }

  url(path: string): string {
    return path.startsWith('http') ? path : `${this.base}/acme/${path}`
  }

  async nonce(): Promise<string> {
    const answer = await fetch(this.url('new-nonce'), { method: 'HEAD', signal: AbortSignal.timeout(20_000) })
    return answer.headers.get('replay-nonce') ?? ''
  }

  /** @param payload null for POST-as-GET */
  async send(path: string, payload: unknown = null, options: SendOptions = {}): Promise<AcmeReply> {
    const {
      key = this.key,
      kid = this.account,
      header = {},
      type = 'application/jose+json',
      raw,
      through = this.base,
    } = options
    const nonce = this.#nonce ?? (await this.nonce())
    this.#nonce = null
    const identity = kid === null ? { jwk: key.jwk } : { kid }
    const jws = jwsOf({ alg: key.alg, nonce, url: this.url(path), ...identity, ...header }, payload, key)
    const answer = await fetch(this.url(path).replace(this.base, through), {
      method: 'POST',
      headers: { 'Content-Type': type },
      body: raw ?? JSON.stringify(jws),
      signal: AbortSignal.timeout(20_000),
    })
    this.#nonce = answer.headers.get('replay-nonce')
    const text = await answer.text()
    const isJson = (answer.headers.get('content-type') ?? '').includes('json')
    return { status: answer.status, headers: answer.headers, text, body: isJson ? (JSON.parse(text) as Json) : {} }
  }

  async register({ keyId, hmacKey }: { keyId: string; hmacKey: string }): Promise<AcmeReply> {
    const externalAccountBinding = bindingOf(keyId, hmacKey, this.url('new-account'), this.key.jwk)
    const reply = await this.send('new-account', { externalAccountBinding }, { kid: null })
    this.account = reply.headers.get('location')
    return reply
  }

  /** The key authorization of a challenge's token. */
  authorizationOf = (token: unknown): string => `${String(token)}.${this.key.thumbprint}`
}
