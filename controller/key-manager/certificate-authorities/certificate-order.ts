import { ApiError } from '../../http/errors.js'
import type { Order, OrderExecutor, OrderOutcome } from '../orders/outcome.js'
import type { CaBackend, CaService } from './ca-backend.js'
import { type CertificateSpec, parseCertificateSpec } from './certificate-meta.js'
import { recordIssue, storeCertificate } from './issue/certificate-row.js'
import { invalidOrder, type Obtained, obtainCertificate } from './issue/obtain-certificate.js'

/** Executes certificate orders. */
export function certificateOrderExecutor(service: CaService, backends: readonly CaBackend[]): OrderExecutor {
  return async (order, signal) => {
    const spec = readSpec(order)
    if ('kind' in spec) return spec
    const outcome = await obtainCertificate(
      service,
      backends,
      { applicant: order, spec, validity: spec.validity },
      signal,
    )
    return outcome.kind === 'obtained' ? issuedOutcome(order, spec, outcome) : outcome
  }
}

/** An order that an earlier version accepted may be invalid now. */
function readSpec({ meta }: Order): CertificateSpec | Extract<OrderOutcome, { kind: 'failed' }> {
  try {
    return parseCertificateSpec(meta)
  } catch (error) {
    if (error instanceof ApiError) return invalidOrder(error.message)
    throw error
  }
}

/** The container of an order. */
function issuedOutcome(
  order: Order,
  spec: CertificateSpec,
  { issued, secrets, references }: Extract<Obtained, { kind: 'obtained' }>,
): OrderOutcome {
  return {
    kind: 'made',
    secrets,
    references,
    container: { name: spec.name, type: 'certificate' },
    subStatus: 'cert_generated',
    subStatusMessage: 'The certificate has been issued.',
    alsoStore: async (trx, containerId) => {
      await recordIssue(trx, order, issued)
      if (containerId === null) throw new Error('A certificate order has a container.')
      const { renew, newKey } = spec
      await storeCertificate(trx, { order, containerId, renew, newKey }, issued)
    },
  }
}
