import type * as Pkcs11 from 'pkcs11js'
import type { TokenFault, TokenSettings } from './calls.js'

/** The npm package pkcs11js, loaded only when needed. */
export type Pkcs11Module = typeof Pkcs11

/** A session with the user logged in. */
export type TokenSession = { library: Pkcs11.PKCS11; session: Buffer }

/** Fails a call; the fault tells how to react. */
export class TokenError extends Error {
  constructor(
    readonly fault: TokenFault['fault'],
    reason: string,
  ) {
    super(reason)
  }
}

/** Errors after which a retry can lock the token. */
const PIN_ERRORS = /^CKR_(PIN_|USER_PIN_NOT_INITIALIZED)/

/** @throws TokenError */
export function openSession(pkcs11: Pkcs11Module, settings: TokenSettings): TokenSession {
  const library = new pkcs11.PKCS11()
  try {
    library.load(settings.libraryPath)
  } catch (error) {
    throw new TokenError(
      'misconfigured',
      `The PKCS#11 library ${settings.libraryPath} cannot be loaded: ${errorText(error)}.`,
    )
  }
  library.C_Initialize()
  const slot = findSlot(library, settings, pkcs11.CKF_TOKEN_INITIALIZED)
  const session = library.C_OpenSession(slot, pkcs11.CKF_SERIAL_SESSION | pkcs11.CKF_RW_SESSION)
  try {
    library.C_Login(session, pkcs11.CKU_USER, settings.pin)
  } catch (error) {
    const text = errorText(error)
    if (PIN_ERRORS.test(text)) throw new TokenError('misconfigured', `The token rejected the PIN: ${text}.`)
    throw error
  }
  return { library, session }
}

function findSlot(library: Pkcs11.PKCS11, settings: TokenSettings, initialised: number): Pkcs11.Handle {
  const tokens = library
    .C_GetSlotList(true)
    .map(slot => ({ slot, info: library.C_GetTokenInfo(slot) }))
    .filter(({ info }) => (info.flags & initialised) !== 0)
  const { found, otherwise } = selectToken(tokens, settings)
  if (found !== undefined) return found.slot
  const present = tokens.map(({ info }) => `${info.label.trim()} (${info.serialNumber.trim()})`)
  throw new TokenError('broken', `${otherwise}; available tokens: ${present.join(', ') || 'none'}.`)
}

type PresentToken = { slot: Pkcs11.Handle; info: Pkcs11.TokenInfo }

/** The configured token, and what is wrong when it is not found. */
function selectToken(
  tokens: readonly PresentToken[],
  { serialNumber, labels, slotId }: TokenSettings,
): { found: PresentToken | undefined; otherwise: string } {
  if (serialNumber !== null) {
    const found = tokens.find(({ info }) => info.serialNumber.trim() === serialNumber)
    return { found, otherwise: `No token has the serial number ${serialNumber}` }
  }
  if (labels.length > 0) {
    const found = labels.map(label => tokens.find(({ info }) => info.label.trim() === label)).find(Boolean)
    return { found, otherwise: `No token has the label ${labels.join(' or ')}` }
  }
  if (slotId !== null) {
    const found = tokens.find(({ slot }) => slot.readBigUInt64LE() === BigInt(slotId))
    return { found, otherwise: `Slot ${slotId} has no token` }
  }
  const [only, another] = tokens
  const otherwise = 'There is not exactly one token, so set token_labels or token_serial_number'
  return { found: another === undefined ? only : undefined, otherwise }
}

/** The name of a PKCS#11 return value, or another error message. Neither holds anything secret. */
export const errorText = (error: unknown): string => (error instanceof Error ? error.message : String(error))
