import type { RequestedReferences } from '../../../x509/material/reference.js'
import type { listener } from '../objects/listeners/resource.js'
import type { pool } from '../objects/pools/resource.js'
import type { Created } from '../schema/attributes.js'
import type { LoadBalancerTree, TlsMaterial } from './tree.js'

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

/** A reference, and what it must lead to. */
export type MaterialReference = Pick<TlsMaterial, 'ref' | 'kind'> & {
  /** Of a revocation list: the reference to the CA that must have signed it. */
  authority: string | null
}

/** All that a load balancer refers to, each once, sorted. Excludes objects under deletion. Pure. */
export function referencesIn({ change, listeners, pools }: LoadBalancerTree): MaterialReference[] {
  if (change === 'delete') return []
  const references = [
    ...listeners.filter(isKept).map(
      (one): References => ({
        certificates: [one.defaultTlsContainerRef, ...one.sniContainerRefs],
        authority: one.clientCaTlsContainerRef,
        revocationList: one.clientCrlContainerRef,
      }),
    ),
    ...pools.filter(isKept).map(
      (one): References => ({
        certificates: [one.tlsContainerRef],
        authority: one.caTlsContainerRef,
        revocationList: one.crlContainerRef,
      }),
    ),
  ]
  const found = new Map<string, MaterialReference>()
  for (const { certificates, authority, revocationList } of references) {
    const own: MaterialReference[] = [
      ...certificates.flatMap(ref => (ref === null ? [] : [{ ref, kind: 'certificate' as const, authority: null }])),
      ...(authority === null ? [] : [{ ref: authority, kind: 'authority' as const, authority: null }]),
      ...(revocationList === null ? [] : [{ ref: revocationList, kind: 'revocation list' as const, authority }]),
    ]
    for (const one of own) found.set(materialKey(one), one)
  }
  return [...found.values()].sort((a, b) => (materialKey(a) < materialKey(b) ? -1 : 1))
}

export const materialKey = ({ ref, kind }: Pick<TlsMaterial, 'ref' | 'kind'>): string => `${ref} ${kind}`

const isKept = ({ change }: { change: string }): boolean => change !== 'delete'
