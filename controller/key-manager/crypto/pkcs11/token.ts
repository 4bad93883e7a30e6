import { randomBytes } from 'node:crypto'
import type * as Pkcs11 from 'pkcs11js'
import type { TokenCall, TokenResult, TokenSettings } from './calls.js'
import { MasterKeys } from './master-keys.js'
import { ProjectKeys } from './project-keys.js'
import { openSession, type Pkcs11Module, TokenError, type TokenSession } from './session.js'

const NONCE_BYTES = 12
const TAG_BYTES = 16

/** @throws TokenError */
export const openToken = (pkcs11: Pkcs11Module, settings: TokenSettings): Token =>
  new Token(pkcs11, openSession(pkcs11, settings), settings)

/** Executes calls in a PKCS#11 token, one after the other. */
export class Token {
  readonly #pkcs11: Pkcs11Module
  readonly #token: TokenSession
  readonly #masters: MasterKeys
  readonly #keys: ProjectKeys

  constructor(pkcs11: Pkcs11Module, token: TokenSession, settings: TokenSettings) {
    this.#pkcs11 = pkcs11
    this.#token = token
    this.#masters = new MasterKeys(pkcs11, token, settings)
    this.#keys = new ProjectKeys(pkcs11, token, this.#masters, settings)
  }

  /** @throws TokenError, or the library's error when the library or the token fails */
  perform(call: TokenCall): TokenResult {
    switch (call.call) {
      case 'find':
        return this.#masters.find(call.label) !== null
      case 'create':
        return this.#masters.create(call.label)
      case 'attributes':
        return this.#masters.attributes(call.label)
      case 'make check value':
      case 'create project key':
        return this.#keys.generateWrapped(call.label)
      case 'match check value':
        return this.#keys.matches(call.label, call.checkValue)
      case 'rewrap':
        return this.#keys.rewrap(call.key, call.label)
      case 'encrypt':
        return this.#seal(this.#keys.open(call.key), call.data, call.context)
      case 'decrypt':
        return this.#unseal(this.#keys.open(call.key), call.data, call.context)
      case 'forget':
        this.#keys.forget(call.keyId)
        return true
    }
  }

  // Prepends one byte, because the library refuses to encrypt an empty value.
  #seal(handle: Pkcs11.Handle, plaintext: Buffer, context: string): Buffer {
    const { library, session } = this.#token
    const nonce = randomBytes(NONCE_BYTES)
    const data = Buffer.concat([Buffer.alloc(1), plaintext])
    library.C_EncryptInit(session, this.#gcm(nonce, context), handle)
    return Buffer.concat([nonce, library.C_Encrypt(session, data, Buffer.alloc(data.length + TAG_BYTES))])
  }

  // A token's error does not tell a wrong tag from a fault of the token. If a newly sealed value opens, the
  // token works and the given value is wrong.
  #unseal(handle: Pkcs11.Handle, sealed: Buffer, context: string): Buffer {
    if (sealed.length < NONCE_BYTES + 1 + TAG_BYTES) throw new TokenError('value', 'The value is too short.')
    try {
      return this.#unsealAs(handle, sealed, context)
    } catch {
      this.#unsealAs(handle, this.#seal(handle, Buffer.alloc(0), context), context)
      throw new TokenError('value', 'The value does not belong to this key and context.')
    }
  }

  #unsealAs(handle: Pkcs11.Handle, sealed: Buffer, context: string): Buffer {
    const { library, session } = this.#token
    library.C_DecryptInit(session, this.#gcm(sealed.subarray(0, NONCE_BYTES), context), handle)
    const data = sealed.subarray(NONCE_BYTES)
    return library.C_Decrypt(session, data, Buffer.alloc(data.length)).subarray(1)
  }

  #gcm(iv: Buffer, context: string): Pkcs11.Mechanism {
    const parameter: Pkcs11.AesGCM = {
      type: this.#pkcs11.CK_PARAMS_AES_GCM,
      iv,
      ivBits: NONCE_BYTES * 8,
      aad: Buffer.from(context),
      tagBits: TAG_BYTES * 8,
    }
    return { mechanism: this.#pkcs11.CKM_AES_GCM, parameter }
  }
}
