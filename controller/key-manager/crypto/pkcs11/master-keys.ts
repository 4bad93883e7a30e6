import type * as Pkcs11 from 'pkcs11js'
import { createKeyCache, type KeyCache } from '../key-cache.js'
import type { KeyAttributes, TokenSettings } from './calls.js'
import { aesKey, KEY_BYTES } from './key-templates.js'
import { type Pkcs11Module, TokenError, type TokenSession } from './session.js'

/** The master keys of a token, by label. They are permanent and never leave it. */
export class MasterKeys {
  readonly #pkcs11: Pkcs11Module
  readonly #token: TokenSession
  readonly #cache: KeyCache<Pkcs11.Handle>

  constructor(pkcs11: Pkcs11Module, token: TokenSession, settings: TokenSettings) {
    this.#pkcs11 = pkcs11
    this.#token = token
    this.#cache = createKeyCache(settings.keyCacheLimit, settings.keyCacheMilliseconds)
  }

  /** @returns null if there is none @throws TokenError if there are several, or if the key could leave the token */
  find(label: string): Pkcs11.Handle | null {
    const cached = this.#cache.get(label)
    if (cached !== undefined) return cached
    const [found, another] = this.#labelled(label)
    if (found === undefined) return null
    if (another !== undefined) throw new TokenError('misconfigured', `The token has several keys labelled ${label}.`)
    const { CKA_SENSITIVE, CKA_EXTRACTABLE } = this.#attributesOf(found)
    if (CKA_SENSITIVE !== true || CKA_EXTRACTABLE !== false) {
      throw new TokenError(
        'misconfigured',
        `The key ${label} could leave the token; it must be sensitive and not extractable.`,
      )
    }
    this.#cache.set(label, found)
    return found
  }

  /** @throws TokenError */
  get(label: string): Pkcs11.Handle {
    const found = this.find(label)
    if (found === null) throw new TokenError('absent', `The token has no master key labelled ${label}.`)
    return found
  }

  /** @returns false if a key with this label exists; it stays unchanged */
  create(label: string): boolean {
    const pkcs11 = this.#pkcs11
    if (this.#labelled(label).length > 0) return false
    const cleared = [
      pkcs11.CKA_EXTRACTABLE,
      pkcs11.CKA_MODIFIABLE,
      pkcs11.CKA_ENCRYPT,
      pkcs11.CKA_DECRYPT,
      pkcs11.CKA_SIGN,
      pkcs11.CKA_VERIFY,
      pkcs11.CKA_DERIVE,
    ]
    const set = [pkcs11.CKA_TOKEN, pkcs11.CKA_WRAP, pkcs11.CKA_UNWRAP]
    const { library, session } = this.#token
    library.C_GenerateKey(
      session,
      { mechanism: pkcs11.CKM_AES_KEY_GEN },
      aesKey(pkcs11, [
        { type: pkcs11.CKA_LABEL, value: Buffer.from(label) },
        { type: pkcs11.CKA_VALUE_LEN, value: KEY_BYTES },
        ...cleared.map(type => ({ type, value: false })),
        ...set.map(type => ({ type, value: true })),
      ]),
    )
    return true
  }

  /** @throws TokenError */
  attributes(label: string): KeyAttributes {
    return this.#attributesOf(this.get(label))
  }

  #labelled(label: string): Pkcs11.Handle[] {
    const { library, session } = this.#token
    library.C_FindObjectsInit(session, [
      { type: this.#pkcs11.CKA_CLASS, value: this.#pkcs11.CKO_SECRET_KEY },
      { type: this.#pkcs11.CKA_LABEL, value: Buffer.from(label) },
    ])
    try {
      return library.C_FindObjects(session, 2)
    } finally {
      library.C_FindObjectsFinal(session)
    }
  }

  #attributesOf(handle: Pkcs11.Handle): KeyAttributes {
    const pkcs11 = this.#pkcs11
    const names = {
      CKA_TOKEN: pkcs11.CKA_TOKEN,
      CKA_PRIVATE: pkcs11.CKA_PRIVATE,
      CKA_SENSITIVE: pkcs11.CKA_SENSITIVE,
      CKA_ALWAYS_SENSITIVE: pkcs11.CKA_ALWAYS_SENSITIVE,
      CKA_EXTRACTABLE: pkcs11.CKA_EXTRACTABLE,
      CKA_NEVER_EXTRACTABLE: pkcs11.CKA_NEVER_EXTRACTABLE,
      CKA_WRAP: pkcs11.CKA_WRAP,
      CKA_UNWRAP: pkcs11.CKA_UNWRAP,
      CKA_ENCRYPT: pkcs11.CKA_ENCRYPT,
      CKA_DECRYPT: pkcs11.CKA_DECRYPT,
    }
    const values = this.#token.library.C_GetAttributeValue(
      this.#token.session,
      handle,
      Object.values(names).map(type => ({ type })),
    )
    return Object.fromEntries(
      Object.entries(names).map(([name, type]) => {
        const value = values.find(attribute => attribute.type === type)?.value
        return [name, Buffer.isBuffer(value) && value[0] === 1]
      }),
    )
  }
}
