/**
 * Names of the files that HAProxy reads for TLS, relative to the directory of its configuration. HAProxy's runtime API
 * knows them by the same names.
 */

/** A list of certificates. @param listenerId whose */
export const listPath = (listenerId: string): string => `tls/${listenerId}.list`

/** What a listener or pool has one of. */
export type MaterialSlot = 'default' | 'client-ca' | 'client-crl' | 'client' | 'ca' | 'crl'

export const materialPath = (ownerId: string, slot: MaterialSlot): string => `tls/${ownerId}.${slot}.pem`

/** The certificate that answers a challenge over TLS. @param digest of the key authorization */
export const challengeCertificatePath = (digest: string): string => `tls/${digest}.challenge.pem`

/** A certificate that several lists may hold. @param targetId id of the container or secret */
export const certificatePath = (targetId: string): string => `tls/${targetId}.pem`

/** HAProxy reads a certificate's OCSP response from the file with this at the end of its name. */
export const STAPLE_SUFFIX = '.ocsp'

/** Whether a file holds a certificate that is presented to clients. */
export const isServed = (path: string): boolean => /^tls\/[0-9a-f-]{36}(\.default)?\.pem$/.test(path)
