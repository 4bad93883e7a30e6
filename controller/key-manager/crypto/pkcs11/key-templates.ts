import type * as Pkcs11 from 'pkcs11js'
import type { Pkcs11Module } from './session.js'

/** Length of every key: AES-256. */
export const KEY_BYTES = 32

/** Attributes of every key; its value cannot be read. */
export const aesKey = (pkcs11: Pkcs11Module, values: Pkcs11.Template): Pkcs11.Template => [
  { type: pkcs11.CKA_CLASS, value: pkcs11.CKO_SECRET_KEY },
  { type: pkcs11.CKA_KEY_TYPE, value: pkcs11.CKK_AES },
  { type: pkcs11.CKA_PRIVATE, value: true },
  { type: pkcs11.CKA_SENSITIVE, value: true },
  ...values,
]

/** A project key; it exists only in the session. @param extractable whether it may leave the token wrapped */
export const projectKey = (pkcs11: Pkcs11Module, extractable: boolean): Pkcs11.Template =>
  aesKey(pkcs11, [
    { type: pkcs11.CKA_TOKEN, value: false },
    { type: pkcs11.CKA_EXTRACTABLE, value: extractable },
    { type: pkcs11.CKA_ENCRYPT, value: true },
    { type: pkcs11.CKA_DECRYPT, value: true },
  ])
