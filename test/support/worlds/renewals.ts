import type { Test } from 'tap'
import type { CaBackend } from '../../../controller/key-manager/certificate-authorities/ca-backend.js'
import { certificateOrderExecutor } from '../../../controller/key-manager/certificate-authorities/certificate-order.js'
import { startRenewalWorker } from '../../../controller/key-manager/renewals/worker/worker.js'
import { createLog } from '../../../controller/log/log.js'
import type { Json } from '../clients/json-answers.js'
import type { TestKeyManager } from '../clients/key-manager-api.js'
import { eventually } from '../eventually.js'
import { EXECUTORS, orderHelpers, startTestOrderWorker } from './order-worker.js'

const log = createLog('test', 'silent')

/** A worker that renews the certificates of a test; only wake-ups move it unless a sweep interval is given. */
export const startTestRenewalWorker = (manager: TestKeyManager, backends: readonly CaBackend[], sweepSeconds = 60) =>
  startRenewalWorker({
    ...{ database: manager.database, databaseUrl: manager.databaseUrl, keyring: manager.keyring, service: manager },
    ...{ backends, log, config: { concurrency: 4, sweep_interval: sweepSeconds } },
  })

/** Workers for orders and renewals, until the end of the test. */
export async function startCertificateWorkers(t: Test, manager: TestKeyManager, backends: readonly CaBackend[]) {
  for (const backend of backends) await backend.prepare()
  const certificate = certificateOrderExecutor(manager, backends)
  const orders = await startTestOrderWorker(manager, { executors: { ...EXECUTORS, certificate } })
  const renewals = await startTestRenewalWorker(manager, backends)
  t.teardown(async () => {
    await orders.stop()
    await renewals.stop()
    await manager.stop()
  })
}

/** What tests of renewals often do. */
export function renewalHelpers({ ask, database }: TestKeyManager) {
  const { order, ended } = orderHelpers({ ask })
  const show = async (id: string): Promise<Json> => (await ask('GET', `/v1/certificates/${id}`)).body

  /** @returns the id of the container of a certificate order that has ended */
  const ordered = async (meta: Record<string, unknown>): Promise<string> => {
    const record = await ended(await order('certificate', { algorithm: 'ec', ...meta }))
    if (record.status !== 'ACTIVE') throw new Error(JSON.stringify(record))
    return String(record.container_ref).slice(-36)
  }

  /** Makes a certificate older: as if so many days had passed, and the worker looked at it now. */
  const pass = (id: string, days: number): Promise<unknown> =>
    database.raw(
      `WITH aged AS (
         UPDATE certificate SET not_before = not_before - d, not_after = not_after - d, renew_at = renew_at - d,
                retry_at = retry_at - d, hold_until = hold_until - d, checked_at = checked_at, info_at = info_at - d,
                window_start = window_start - d, window_end = window_end - d, attempted_at = attempted_at - d, due_at = now()
           FROM (SELECT ?::float8 * interval '1 day' AS d) days WHERE id = ? RETURNING id)
       SELECT pg_notify('krater_certificate', id::text) FROM aged`,
      [days, id],
    )

  /** Waits until a certificate is as described. */
  const until = (id: string, what: string, holds: (certificate: Json) => boolean): Promise<Json> =>
    eventually(what, async () => {
      const certificate = await show(id)
      return holds(certificate) && certificate
    })

  const events = async (id: string): Promise<Json[]> =>
    (await ask('GET', `/v1/certificates/${id}/events?limit=100`)).body.events as Json[]

  return { show, ordered, pass, until, events }
}
