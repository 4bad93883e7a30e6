import 'node-forge'

declare module 'node-forge' {
  /** Derives a key from a passphrase as PKCS#12 does; `id` is its purpose. */
  type Pkcs12Derivation = (
    passphrase: string | null | undefined,
    salt: util.ByteBuffer,
    id: number,
    iterations: number,
    bytes: number,
    digest?: md.MessageDigest | null,
  ) => util.ByteBuffer

  namespace pbe {
    const generatePkcs12Key: Pkcs12Derivation
  }

  namespace pkcs12 {
    const generateKey: Pkcs12Derivation
  }
}
