import type * as Pkcs11 from 'pkcs11js'
import type { TokenFault, TokenSettings } from './calls.js'

/** The npm package pkcs11js, which is loaded only when it is needed. */
export type Pkcs11Module = typeof Pkcs11

/** A session with the user logged in. */
export type TokenSession = { library: Pkcs11.PKCS11; session: Buffer }

/** A fault that stops a call, with what is to be done about it. */
export class TokenError extends Error {
  constructor(
    readonly fault: TokenFault['fault'],
    reason: string,
  ) {
    super(reason)
  }
}

/** Trying one of these again can lock the token. */
const PIN_ERRORS = /^CKR_(PIN_|USER_PIN_NOT_INITIALIZED)/

/** @throws TokenError */
export function openSession(pkcs11: Pkcs11Module, settings: TokenSettings): TokenSession {
  const library = new pkcs11.PKCS11()
  try {
    library.load(settings.libraryPath)
  } catch (error) {
    throw new TokenError(
      'misconfigured',
      `The PKCS#11 library ${settings.libraryPath} cannot be loaded: ${wordsOf(error)}.`,
    )
  }
  library.C_Initialize()
  const slot = findSlot(library, settings, pkcs11.CKF_TOKEN_INITIALIZED)
  const session = library.C_OpenSession(slot, pkcs11.CKF_SERIAL_SESSION | pkcs11.CKF_RW_SESSION)
  try {
    library.C_Login(session, pkcs11.CKU_USER, settings.pin)
  } catch (error) {
    const words = wordsOf(error)
    if (PIN_ERRORS.test(words)) throw new TokenError('misconfigured', `The token does not take the PIN: ${words}.`)
    throw error
  }
  return { library, session }
}

function findSlot(
  library: Pkcs11.PKCS11,
  { serialNumber, labels, slotId }: TokenSettings,
  initialised: number,
): Pkcs11.Handle {
  const tokens = library
    .C_GetSlotList(true)
    .map(slot => ({ slot, info: library.C_GetTokenInfo(slot) }))
    .filter(({ info }) => (info.flags & initialised) !== 0)
  const found =
    serialNumber !== null
      ? tokens.find(({ info }) => info.serialNumber.trim() === serialNumber)
      : labels.length > 0
        ? labels.map(label => tokens.find(({ info }) => info.label.trim() === label)).find(Boolean)
        : slotId !== null
          ? tokens.find(({ slot }) => slot.readBigUInt64LE() === BigInt(slotId))
          : tokens.length === 1
            ? tokens[0]
            : undefined
  if (found !== undefined) return found.slot
  const configured =
    serialNumber !== null
      ? `with the serial number ${serialNumber}`
      : labels.length > 0
        ? `with the label ${labels.join(' or ')}`
        : slotId !== null
          ? `in slot ${slotId}`
          : 'that is the only one (token_labels or token_serial_number says which)'
  const present = tokens.map(({ info }) => `${info.label.trim()} (${info.serialNumber.trim()})`)
  throw new TokenError('broken', `There is no token ${configured}; there is ${present.join(', ') || 'none at all'}.`)
}

/** The name of a PKCS#11 return value, or what else went wrong. Nothing secret is in either. */
export const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
