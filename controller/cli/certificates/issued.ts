import * as z from 'zod'
import { type ApiClient, ApiRefusal } from '../api-client.js'
import { OperatorError } from '../operator-error.js'
import { askUntil } from './ask-until.js'

const record = z.object({
  names: z.array(z.string()),
  not_after: z.string(),
  version: z.number(),
  attempts: z.number(),
  last_error: z.string().nullable(),
  next_renewal_at: z.string().nullable(),
})

type Issued = z.output<typeof record>

/** A certificate that an order issued, by the reference or id of its container. */
export type IssuedCertificate = {
  read: () => Promise<Issued>
  renew: () => Promise<void>
  rollBack: () => Promise<void>
}

export function openIssued(api: ApiClient, reference: string): IssuedCertificate {
  const id = reference.slice(reference.lastIndexOf('/') + 1)
  const path = `/v1/certificates/${encodeURIComponent(id)}`
  const request = (method: string, action = ''): Promise<unknown> =>
    api.request('key-manager', method, `${path}${action}`).catch((error: unknown) => {
      if (!(error instanceof ApiRefusal) || error.status !== 404) throw error
      throw new OperatorError(
        `No order of the project has issued a certificate into "${reference}". \`krater certificates order\` orders one, and prints its reference.`,
      )
    })
  return {
    read: async () => record.parse(await request('GET')),
    renew: async () => void (await request('POST', '/renew')),
    rollBack: async () => void (await request('POST', '/rollback')),
  }
}

/** `a.example b.example, version 2, until 2027-01-01T00:00:00Z` */
export const describeIssued = ({ names, version, not_after }: Issued): string =>
  `${names.join(' ')}, version ${version}, until ${not_after}`

/**
 * Waits until a renewal that was asked for has succeeded.
 * @param before the certificate before that
 * @param report gets messages while the key manager is away
 * @throws OperatorError if the renewal fails, or takes longer than `seconds`
 */
export async function awaitRenewal(
  certificate: IssuedCertificate,
  before: Issued,
  seconds: number,
  report: (message: string) => void,
): Promise<Issued> {
  const renewed = await askUntil(
    async () => {
      const now = await certificate.read()
      if (now.version > before.version) return now
      if (now.attempts > before.attempts && now.last_error !== null) {
        throw new OperatorError(`The renewal failed: ${now.last_error} ${nextTry(now)}`)
      }
      return undefined
    },
    seconds,
    report,
  )
  if (renewed !== undefined) return renewed
  throw new OperatorError(`The certificate is not renewed after ${seconds} s. The renewal goes on by itself.`)
}

const nextTry = ({ next_renewal_at: at }: Issued): string =>
  at === null ? 'It is not tried again.' : `It is tried again at ${at}.`
