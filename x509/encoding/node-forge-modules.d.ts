// The main module of node-forge loads its RSA, TLS and PKCS#12 too, which take time in every process that starts.
declare module 'node-forge/lib/asn1.js' {
  import { asn1 } from 'node-forge'

  export default asn1
}

declare module 'node-forge/lib/oids.js' {
  import { pki } from 'node-forge'

  const { oids }: typeof pki
  export default oids
}
