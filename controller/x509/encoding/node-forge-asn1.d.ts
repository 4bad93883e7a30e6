import 'node-forge'

declare module 'node-forge' {
  namespace asn1 {
    /** The form of the call that tells all its options; the published types know only the older one. */
    function fromDer(
      bytes: Bytes,
      options: { strict: boolean; parseAllBytes: boolean; decodeBitStrings: boolean; maxDepth: number },
    ): Asn1
  }
}
