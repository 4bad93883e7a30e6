import type { BackendName, CryptoBackend } from './backend.js'
import type { CryptoBackendKind, CryptoContext } from './kind.js'
import { pkcs11Kind } from './pkcs11/kind.js'
import type { Pkcs11Settings } from './pkcs11/options.js'
import { simpleKind } from './simple/kind.js'
import type { SimpleSettings } from './simple/options.js'

/** The settings of each back end, by its name. */
export type CryptoBackendSettings = { simple: SimpleSettings; pkcs11: Pkcs11Settings }

export type CryptoBackendName = keyof CryptoBackendSettings

type Kinds = { [Name in CryptoBackendName]: CryptoBackendKind<CryptoBackendSettings[Name]> }

const cryptoBackends: Kinds = { simple: simpleKind, pkcs11: pkcs11Kind }

export const CRYPTO_BACKEND_NAMES = Object.keys(cryptoBackends) as CryptoBackendName[]

export const storedNameOf = (name: CryptoBackendName): BackendName => cryptoBackends[name].storedName

/** The settings schema of each back end, by its name. */
export const backendOptions = Object.fromEntries(
  CRYPTO_BACKEND_NAMES.map(name => [name, cryptoBackends[name].options]),
) as { [Name in CryptoBackendName]: Kinds[Name]['options'] }

/** The first required setting of a back end that is not set; null when its settings are complete. */
export const missingSetting = <Name extends CryptoBackendName>(name: Name, settings: CryptoBackendSettings) =>
  cryptoBackends[name].missingSetting(settings[name])

/** @throws ConfigurationError */
export const openCryptoBackend = <Name extends CryptoBackendName>(
  name: Name,
  settings: CryptoBackendSettings,
  context: CryptoContext,
): Promise<CryptoBackend> => cryptoBackends[name].open(settings[name], context)
