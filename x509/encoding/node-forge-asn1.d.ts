import 'node-forge'

declare module 'node-forge' {
  namespace asn1 {
    /** The overload with all options, which the published types lack. */
    function fromDer(
      bytes: Bytes,
      options: { strict: boolean; parseAllBytes: boolean; decodeBitStrings: boolean; maxDepth: number },
    ): Asn1
  }
}
