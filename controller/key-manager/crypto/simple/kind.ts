import { originOf, type SecretSource } from '../../../options/secret-source.js'
import type { CryptoBackendKind, CryptoContext } from '../kind.js'
import { masterKeySource, readMasterKeys } from './master-keys.js'
import { type SimpleSettings, simpleOptions } from './options.js'

export const simpleKind: CryptoBackendKind<SimpleSettings> = {
  storedName: 'simple_crypto',
  options: simpleOptions,
  missingSetting: () => null,
  open: openSimple,
}

/** The back end with the master keys its source holds now. @throws ConfigurationError */
export async function openSimple(settings: SimpleSettings, { stateDirectory, keyCacheMilliseconds }: CryptoContext) {
  const { createSimpleCrypto } = await import('./backend.js')
  const source = masterKeySource(settings, stateDirectory)
  return createSimpleCrypto(
    {
      origin: originOf(source),
      remedy: REMEDIES[source.kind],
      keys: await readMasterKeys(source),
      reread: source.kind === 'variable' ? null : () => readMasterKeys(source),
    },
    { keyCacheMilliseconds },
  )
}

/** How an operator makes a new master key known to a running process. */
const REMEDIES: Readonly<Record<SecretSource['kind'], string>> = {
  file: 'Copy the file from the machine where the master key was rotated. Running processes read it again.',
  command: 'Make the command print that key as well. Running processes run it again.',
  variable: 'Add that key to the variable and restart this process.',
}
