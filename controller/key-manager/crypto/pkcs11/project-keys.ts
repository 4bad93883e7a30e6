import type * as Pkcs11 from 'pkcs11js'
import type { ProjectKey } from '../backend.js'
import { createKeyCache, type KeyCache } from '../key-cache.js'
import type { TokenSettings, WrapMechanism } from './calls.js'
import { KEY_BYTES, projectKey } from './key-templates.js'
import type { MasterKeys } from './master-keys.js'
import { type Pkcs11Module, TokenError, type TokenSession } from './session.js'

/** Room for a wrapped key. */
const MOST_WRAPPED_BYTES = 128

/** What a wrapped key begins with: how it was wrapped. */
const WRAP_MARKS: Readonly<Record<WrapMechanism, number>> = {
  CKM_AES_KEY_WRAP: 1,
  CKM_AES_KEY_WRAP_PAD: 2,
  CKM_AES_KEY_WRAP_KWP: 3,
}
/** Of PKCS#11 3.1; pkcs11js has no name for it. */
const CKM_AES_KEY_WRAP_KWP = 0x210b

/** Keys of projects: made in the token, used in it, and leaving it only wrapped by a master key. */
export class ProjectKeys {
  readonly #pkcs11: Pkcs11Module
  readonly #token: TokenSession
  readonly #masters: MasterKeys
  readonly #wrapMechanism: WrapMechanism
  readonly #kept: KeyCache<Pkcs11.Handle>

  constructor(pkcs11: Pkcs11Module, token: TokenSession, masters: MasterKeys, settings: TokenSettings) {
    this.#pkcs11 = pkcs11
    this.#token = token
    this.#masters = masters
    this.#wrapMechanism = settings.wrapMechanism
    this.#kept = createKeyCache(settings.keyCacheLimit, settings.keyCacheMilliseconds, handle => this.#destroy(handle))
  }

  /** A fresh key, wrapped; it does not stay in the token. @throws TokenError */
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

  /** Whether what generateWrapped gave was wrapped by this master key. @throws TokenError */
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
    const known = this.#kept.get(key.id)
    if (known !== undefined) return known
    const handle = this.#unwrap(key.masterKeyId, key.wrapped, false)
    this.#kept.set(key.id, handle)
    return handle
  }

  forget(id: string): void {
    this.#kept.forget(id)
  }

  #wrapAndDestroy(handle: Pkcs11.Handle, label: string): Buffer {
    const { library, session } = this.#token
    try {
      const room = Buffer.alloc(MOST_WRAPPED_BYTES)
      const mechanism = this.#mechanismOf(this.#wrapMechanism)
      const wrapped = library.C_WrapKey(session, mechanism, this.#masters.get(label), handle, room)
      return Buffer.concat([Buffer.from([WRAP_MARKS[this.#wrapMechanism]]), wrapped])
    } finally {
      this.#destroy(handle)
    }
  }

  // Tokens say of a wrong wrapped key nothing by which it could be told from a fault of their own: a sound one shows which it is.
  #unwrap(label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle {
    try {
      return this.#unwrapAs(label, wrapped, extractable)
    } catch (error) {
      if (error instanceof TokenError) throw error
      this.#destroy(this.#unwrapAs(label, this.generateWrapped(label), false))
      throw new TokenError('project key', 'It does not belong to the master key.')
    }
  }

  #unwrapAs(label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle {
    const master = this.#masters.get(label)
    const [name] = Object.entries(WRAP_MARKS).find(([, mark]) => mark === wrapped[0]) ?? []
    if (name === undefined) throw new TokenError('project key', 'It is wrapped in an unknown way.')
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
