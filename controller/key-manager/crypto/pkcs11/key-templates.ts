import type * as Pkcs11 from 'pkcs11js'
import type { Pkcs11Module } from './session.js'

/** Length of every key: AES-256. */
export const KEY_BYTES = 32

/** What all keys have in common: nobody reads their value. */
export const aesKey = (pkcs11: Pkcs11Module, values: Pkcs11.Template): Pkcs11.Template => [
  { type: pkcs11.CKA_CLASS, value: pkcs11.CKO_SECRET_KEY },
  { type: pkcs11.CKA_KEY_TYPE, value: pkcs11.CKK_AES },
  { type: pkcs11.CKA_PRIVATE, value: true },
  { type: pkcs11.CKA_SENSITIVE, value: true },
  ...values,
]

/** A key of a project. It goes with the session. @param extractable whether it may be wrapped to leave the token */
export const projectKey = (pkcs11: Pkcs11Module, extractable: boolean): Pkcs11.Template =>
  aesKey(pkcs11, [
    { type: pkcs11.CKA_TOKEN, value: false },
    { type: pkcs11.CKA_EXTRACTABLE, value: extractable },
    { type: pkcs11.CKA_ENCRYPT, value: true },
    { type: pkcs11.CKA_DECRYPT, value: true },
  ])
