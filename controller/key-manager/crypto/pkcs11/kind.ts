import type { CryptoBackendKind } from '../kind.js'
import { type Pkcs11Settings, pkcs11Options } from './options.js'

export const pkcs11Kind: CryptoBackendKind<Pkcs11Settings> = {
  storedName: 'p11_crypto',
  options: pkcs11Options,
  missingSetting: ({ library_path }) =>
    library_path === undefined ? { setting: 'library_path', what: 'the path of the PKCS#11 library' } : null,
  open: async (settings, context) => {
    const { openToken } = await import('./open-token.js')
    const { createPkcs11Crypto } = await import('./backend.js')
    const { client, origin } = await openToken(settings, context)
    return createPkcs11Crypto(client, settings.master_key_label, origin)
  },
}
