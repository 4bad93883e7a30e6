import type { RequestedReferences } from '../../../x509/material/reference.js'
import type { listener } from '../objects/listeners/resource.js'
import type { pool } from '../objects/pools/resource.js'
import type { Created } from '../schema/attributes.js'

/** Certificate references of one listener or pool. */
type References = {
  certificates: readonly (string | null)[]
  authority: string | null
  revocationList: string | null
}

const NONE: References = { certificates: [], authority: null, revocationList: null }

export type ListenerReferences = Pick<
  Created<typeof listener.attributes>,
  'default_tls_container_ref' | 'sni_container_refs' | 'client_ca_tls_container_ref' | 'client_crl_container_ref'
>

const ofListener = (values: ListenerReferences): References => ({
  certificates: [values.default_tls_container_ref, ...values.sni_container_refs],
  authority: values.client_ca_tls_container_ref,
  revocationList: values.client_crl_container_ref,
})

export type PoolReferences = Pick<
  Created<typeof pool.attributes>,
  'tls_container_ref' | 'ca_tls_container_ref' | 'crl_container_ref'
>

const ofPool = (values: PoolReferences): References => ({
  certificates: [values.tls_container_ref],
  authority: values.ca_tls_container_ref,
  revocationList: values.crl_container_ref,
})

/** References of new listeners and pools; null if there are none. Pure. */
export const newReferences = (
  listeners: readonly ListenerReferences[],
  pools: readonly PoolReferences[],
): RequestedReferences | null =>
  changed([...listeners.map(ofListener), ...pools.map(ofPool)].map(now => ({ before: NONE, now })))

/**
 * References that an update adds to a listener; null if there are none. A revocation list counts as new if its
 * authority changes. Pure.
 */
export const changedListenerReferences = (
  before: ListenerReferences,
  given: Partial<ListenerReferences>,
): RequestedReferences | null => changed([{ before: ofListener(before), now: ofListener({ ...before, ...given }) }])

/** The same for a pool. */
export const changedPoolReferences = (
  before: PoolReferences,
  given: Partial<PoolReferences>,
): RequestedReferences | null => changed([{ before: ofPool(before), now: ofPool({ ...before, ...given }) }])

function changed(changes: readonly { before: References; now: References }[]): RequestedReferences | null {
  const desired = {
    certificates: changes.flatMap(({ before, now }) =>
      now.certificates.filter(ref => ref !== null).filter(ref => !before.certificates.includes(ref)),
    ),
    authorities: changes.flatMap(({ before, now: { authority } }) =>
      authority !== null && authority !== before.authority ? [authority] : [],
    ),
    revocationLists: changes.flatMap(({ before, now: { authority, revocationList: ref } }) =>
      ref !== null && authority !== null && (ref !== before.revocationList || authority !== before.authority)
        ? [{ ref, authority }]
        : [],
    ),
  }
  return Object.values(desired).some(references => references.length > 0) ? desired : null
}
