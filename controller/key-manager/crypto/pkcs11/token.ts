import { randomBytes } from 'node:crypto'
import type * as Pkcs11 from 'pkcs11js'
import type { ProjectKey } from '../backend.js'
import { createKeyCache } from '../key-cache.js'
import type { KeyAttributes, TokenCall, TokenResult, TokenSettings, WrapMechanism } from './calls.js'
import { openSession, type Pkcs11Module, TokenError } from './session.js'

const NONCE_BYTES = 12
const TAG_BYTES = 16
const KEY_BYTES = 32
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

/**
 * Carries out calls in a PKCS#11 token, one after the other. Master keys stay in it for good; keys of projects are made in it, leave it only wrapped,
 * and are used in it.
 * @throws TokenError, or the library's own error when the library or the token fails
 */
export type Token = { perform: (call: TokenCall) => TokenResult }

/** @throws TokenError */
export function openToken(pkcs11: Pkcs11Module, settings: TokenSettings): Token {
  const { library, session } = openSession(pkcs11, settings)
  const destroy = (handle: Pkcs11.Handle) => library.C_DestroyObject(session, handle)
  const masters = createKeyCache<Pkcs11.Handle>(settings.keyCacheLimit, settings.keyCacheMilliseconds)
  const kept = createKeyCache<Pkcs11.Handle>(settings.keyCacheLimit, settings.keyCacheMilliseconds, destroy)

  const aesKey = (values: Pkcs11.Template): Pkcs11.Template => [
    { type: pkcs11.CKA_CLASS, value: pkcs11.CKO_SECRET_KEY },
    { type: pkcs11.CKA_KEY_TYPE, value: pkcs11.CKK_AES },
    { type: pkcs11.CKA_PRIVATE, value: true },
    { type: pkcs11.CKA_SENSITIVE, value: true },
    ...values,
  ]
  const projectKey = (extractable: boolean): Pkcs11.Template =>
    aesKey([
      { type: pkcs11.CKA_TOKEN, value: false },
      { type: pkcs11.CKA_EXTRACTABLE, value: extractable },
      { type: pkcs11.CKA_ENCRYPT, value: true },
      { type: pkcs11.CKA_DECRYPT, value: true },
    ])

  const labelled = (label: string): Pkcs11.Handle[] => {
    library.C_FindObjectsInit(session, [
      { type: pkcs11.CKA_CLASS, value: pkcs11.CKO_SECRET_KEY },
      { type: pkcs11.CKA_LABEL, value: Buffer.from(label) },
    ])
    try {
      return library.C_FindObjects(session, 2)
    } finally {
      library.C_FindObjectsFinal(session)
    }
  }
  const findMaster = (label: string): Pkcs11.Handle | null => {
    const known = masters.get(label)
    if (known !== undefined) return known
    const [found, another] = labelled(label)
    if (found === undefined) return null
    if (another !== undefined) throw new TokenError('misconfigured', `The token has several keys labelled ${label}.`)
    const { CKA_SENSITIVE, CKA_EXTRACTABLE } = attributesOf(found)
    if (CKA_SENSITIVE !== true || CKA_EXTRACTABLE !== false) {
      throw new TokenError(
        'misconfigured',
        `The key ${label} could leave the token; it must be sensitive and not extractable.`,
      )
    }
    masters.set(label, found)
    return found
  }
  const masterOf = (label: string): Pkcs11.Handle => {
    const found = findMaster(label)
    if (found === null) throw new TokenError('absent', `The token has no master key labelled ${label}.`)
    return found
  }
  const createMaster = (label: string): boolean => {
    if (labelled(label).length > 0) return false
    const no = [
      pkcs11.CKA_EXTRACTABLE,
      pkcs11.CKA_MODIFIABLE,
      pkcs11.CKA_ENCRYPT,
      pkcs11.CKA_DECRYPT,
      pkcs11.CKA_SIGN,
      pkcs11.CKA_VERIFY,
      pkcs11.CKA_DERIVE,
    ]
    const yes = [pkcs11.CKA_TOKEN, pkcs11.CKA_WRAP, pkcs11.CKA_UNWRAP]
    library.C_GenerateKey(
      session,
      { mechanism: pkcs11.CKM_AES_KEY_GEN },
      aesKey([
        { type: pkcs11.CKA_LABEL, value: Buffer.from(label) },
        { type: pkcs11.CKA_VALUE_LEN, value: KEY_BYTES },
        ...no.map(type => ({ type, value: false })),
        ...yes.map(type => ({ type, value: true })),
      ]),
    )
    return true
  }
  const attributesOf = (handle: Pkcs11.Handle): KeyAttributes => {
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
    const values = library.C_GetAttributeValue(
      session,
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

  const mechanismOf = (name: WrapMechanism): Pkcs11.Mechanism => ({
    mechanism: name === 'CKM_AES_KEY_WRAP_KWP' ? CKM_AES_KEY_WRAP_KWP : pkcs11[name],
  })
  const wrap = (handle: Pkcs11.Handle, label: string): Buffer => {
    const room = Buffer.alloc(MOST_WRAPPED_BYTES)
    const wrapped = library.C_WrapKey(session, mechanismOf(settings.wrapMechanism), masterOf(label), handle, room)
    return Buffer.concat([Buffer.from([WRAP_MARKS[settings.wrapMechanism]]), wrapped])
  }
  const unwrapAs = (label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle => {
    const master = masterOf(label)
    const [name] = Object.entries(WRAP_MARKS).find(([, mark]) => mark === wrapped[0]) ?? []
    if (name === undefined) throw new TokenError('project key', 'It is wrapped in an unknown way.')
    const bytes = wrapped.subarray(1)
    return library.C_UnwrapKey(session, mechanismOf(name as WrapMechanism), master, bytes, projectKey(extractable))
  }
  const generate = (): Pkcs11.Handle =>
    library.C_GenerateKey(session, { mechanism: pkcs11.CKM_AES_KEY_GEN }, [
      ...projectKey(true),
      { type: pkcs11.CKA_VALUE_LEN, value: KEY_BYTES },
    ])
  /** A fresh key, wrapped; it does not stay in the token. */
  const generateWrapped = (label: string): Buffer => {
    const handle = generate()
    try {
      return wrap(handle, label)
    } finally {
      destroy(handle)
    }
  }
  // Tokens say of a wrong wrapped key or tag nothing by which it could be told from a fault of their own: something sound shows which it is.
  const unwrap = (label: string, wrapped: Buffer, extractable: boolean): Pkcs11.Handle => {
    try {
      return unwrapAs(label, wrapped, extractable)
    } catch (error) {
      if (error instanceof TokenError) throw error
      destroy(unwrapAs(label, generateWrapped(label), false))
      throw new TokenError('project key', 'It does not belong to the master key.')
    }
  }
  const keyOf = (key: ProjectKey): Pkcs11.Handle => {
    const known = kept.get(key.id)
    if (known !== undefined) return known
    const handle = unwrap(key.masterKeyId, key.wrapped, false)
    kept.set(key.id, handle)
    return handle
  }

  const gcm = (iv: Buffer, context: string): Pkcs11.Mechanism => {
    const parameter: Pkcs11.AesGCM = {
      type: pkcs11.CK_PARAMS_AES_GCM,
      iv,
      ivBits: NONCE_BYTES * 8,
      aad: Buffer.from(context),
      tagBits: TAG_BYTES * 8,
    }
    return { mechanism: pkcs11.CKM_AES_GCM, parameter }
  }
  // One byte goes before what is encrypted: the library refuses to encrypt nothing.
  const seal = (handle: Pkcs11.Handle, plaintext: Buffer, context: string): Buffer => {
    const nonce = randomBytes(NONCE_BYTES)
    const data = Buffer.concat([Buffer.alloc(1), plaintext])
    library.C_EncryptInit(session, gcm(nonce, context), handle)
    return Buffer.concat([nonce, library.C_Encrypt(session, data, Buffer.alloc(data.length + TAG_BYTES))])
  }
  const openAs = (handle: Pkcs11.Handle, sealed: Buffer, context: string): Buffer => {
    library.C_DecryptInit(session, gcm(sealed.subarray(0, NONCE_BYTES), context), handle)
    const data = sealed.subarray(NONCE_BYTES)
    return library.C_Decrypt(session, data, Buffer.alloc(data.length)).subarray(1)
  }
  const open = (handle: Pkcs11.Handle, sealed: Buffer, context: string): Buffer => {
    if (sealed.length < NONCE_BYTES + 1 + TAG_BYTES) throw new TokenError('value', 'It is too short.')
    try {
      return openAs(handle, sealed, context)
    } catch {
      openAs(handle, seal(handle, Buffer.alloc(0), context), context)
      throw new TokenError('value', 'It does not belong to the key and its place.')
    }
  }

  const matches = (label: string, checkValue: Buffer): boolean => {
    try {
      destroy(unwrap(label, checkValue, false))
      return true
    } catch (error) {
      if (error instanceof TokenError && error.fault === 'project key') return false
      throw error
    }
  }
  const rewrap = (key: ProjectKey, label: string): Buffer => {
    const handle = unwrap(key.masterKeyId, key.wrapped, true)
    try {
      return wrap(handle, label)
    } finally {
      destroy(handle)
    }
  }

  return {
    perform: asked => {
      switch (asked.call) {
        case 'find':
          return findMaster(asked.label) !== null
        case 'create':
          return createMaster(asked.label)
        case 'attributes':
          return attributesOf(masterOf(asked.label))
        case 'make check value':
        case 'create project key':
          return generateWrapped(asked.label)
        case 'match check value':
          return matches(asked.label, asked.checkValue)
        case 'rewrap':
          return rewrap(asked.key, asked.label)
        case 'encrypt':
          return seal(keyOf(asked.key), asked.data, asked.context)
        case 'decrypt':
          return open(keyOf(asked.key), asked.data, asked.context)
        case 'forget':
          kept.forget(asked.keyId)
          return true
      }
    },
  }
}
