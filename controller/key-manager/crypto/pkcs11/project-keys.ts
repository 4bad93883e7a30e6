import type * as Pkcs11 from 'pkcs11js'
import type { ProjectKey } from '../backend.js'
import { createKeyCache, type KeyCache } from '../key-cache.js'
import type { TokenSettings, WrapMechanism } from './calls.js'
import { KEY_BYTES, projectKey } from './key-templates.js'
import type { MasterKeys } from './master-keys.js'
import { type Pkcs11Module, TokenError, type TokenSession } from './session.js'

/** Size of the buffer for a wrapped key. */
const MAX_WRAPPED_BYTES = 128

/** The first byte of a stored wrapped key, which tells its mechanism. */
const MECHANISM_BYTES: Readonly<Record<WrapMechanism, number>> = {
  CKM_AES_KEY_WRAP: 1,
  CKM_AES_KEY_WRAP_PAD: 2,
  CKM_AES_KEY_WRAP_KWP: 3,
}
/** From PKCS#11 3.1; pkcs11js does not define it. */
const CKM_AES_KEY_WRAP_KWP = 0x210b

/** Project keys: the token makes and uses them, and they leave it only wrapped by a master key. */
export class ProjectKeys {
  readonly #pkcs11: Pkcs11Module
  readonly #token: TokenSession
  readonly #masters: MasterKeys
  readonly #wrapMechanism: WrapMechanism
  readonly #cache: KeyCache<Pkcs11.Handle>

  constructor(pkcs11: Pkcs11Module, token: TokenSession, masters: MasterKeys, settings: TokenSettings) {
    this.#pkcs11 = pkcs11
    this.#token = token
    this.#masters = masters
    this.#wrapMechanism = settings.wrapMechanism
    this.#cache = createKeyCache(settings.keyCacheLimit, settings.keyCacheMilliseconds, handle => this.#destroy(handle))
  }

  /** A new key, wrapped; the token does not keep it. @throws TokenError */
  generateWrapped(label: string): Buffer {
    const { library, session } = this.#token
    const handle = library.C_GenerateKey(session, { mechanism: this.#pkcs11.CKM_AES_KEY_GEN }, [
      ...projectKey(this.#pkcs11, true),
      { type: this.#pkcs11.CKA_VALUE_LEN, value: KEY_BYTES },
    ])
    return this.#wrapAndDestroy(handle, label)
  }

  /** The same key under another master key. @throws TokenError */
  rewrap({ masterKeyId, wrapped }: ProjectKey, label: string): Buffer {
    return this.#wrapAndDestroy(this.#unwrap(masterKeyId, wrapped, true), label)
  }

  /** Whether this master key wrapped the result of generateWrapped. @throws TokenError */
  matches(label: string, checkValue: Buffer): boolean {
    try {
      this.#destroy(this.#unwrap(label, checkValue, false))
      return true
    } catch (error) {
      if (error instanceof TokenError && error.fault === 'project key') return false
      throw error
    }
  }

  /** The key, unwrapped inside the token. @throws TokenError */
  open(key: ProjectKey): Pkcs11.Handle {
    const cached = this.#cache.get(key.id)
    if (cached !== undefined) return cached
    const handle = this.#unwrap(key.masterKeyId, key.wrapped, false)
    this.#cache.set(key.id, handle)
    return handle
  }

  forget(id: string): void {
    this.#cache.forget(id)
  }

  #wrapAndDestroy(handle: Pkcs11.Handle, label: string): Buffer {
    const { library, session } = this.#token
    try {
      const output = Buffer.alloc(MAX_WRAPPED_BYTES)
      const mechanism = this.#mechanismOf(this.#wrapMechanism)
      const wrapped = library.C_WrapKey(session, mechanism, this.#masters.get(label), handle, output)
      return Buffer.concat([Buffer.from([MECHANISM_BYTES[this.#wrapMechanism]]), wrapped])
    } finally {
      this.#destroy(handle)
    }
  }

  // A token's error does not tell a wrong wrapped key from a fault of the token. If a newly wrapped key
  // unwraps, the token works and the given key is wrong.
  #unwrap(label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle {
    try {
      return this.#unwrapAs(label, wrapped, extractable)
    } catch (error) {
      if (error instanceof TokenError) throw error
      this.#destroy(this.#unwrapAs(label, this.generateWrapped(label), false))
      throw new TokenError('project key', 'The wrapped key does not belong to the master key.')
    }
  }

  #unwrapAs(label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle {
    const master = this.#masters.get(label)
    const [name] = Object.entries(MECHANISM_BYTES).find(([, byte]) => byte === wrapped[0]) ?? []
    if (name === undefined) throw new TokenError('project key', 'The wrapping mechanism of the key is unknown.')
    const mechanism = this.#mechanismOf(name as WrapMechanism)
    const { library, session } = this.#token
    return library.C_UnwrapKey(session, mechanism, master, wrapped.subarray(1), projectKey(this.#pkcs11, extractable))
  }

  #mechanismOf(name: WrapMechanism): Pkcs11.Mechanism {
    return { mechanism: name === 'CKM_AES_KEY_WRAP_KWP' ? CKM_AES_KEY_WRAP_KWP : this.#pkcs11[name] }
  }

  #destroy(handle: Pkcs11.Handle): void {
    this.#token.library.C_DestroyObject(this.#token.session, handle)
  }
}
