import * as z from 'zod'
import type { ApiClient } from '../api-client.js'
import { OperatorError } from '../operator-error.js'
import { askUntil } from './ask-until.js'

const page = z.object({
  orders: z.array(
    z.object({ order_ref: z.string(), status: z.string(), meta: z.object({ name: z.string().nullish() }) }),
  ),
})
const placed = z.object({ order_ref: z.string() })
const shown = z.object({
  status: z.enum(['ACTIVE', 'PENDING', 'PROCESSING', 'ERROR']),
  container_ref: z.string().optional(),
  error_reason: z.string().optional(),
  sub_status_message: z.string().optional(),
})
const authorities = z.object({ cas: z.array(z.string()) })

export type CertificateOrder = {
  /** Host names and addresses; the first one is the common name. */
  names: readonly [string, ...string[]]
  /** Of the order and its container. */
  name: string
  /** A CA's id, name or kind; null for the project's preferred one. */
  ca: string | null
}

/** Orders a certificate with a new key, which is renewed by itself. @returns path of the order */
export async function placeOrder(api: ApiClient, { names, name, ca }: CertificateOrder): Promise<string> {
  const [commonName] = names
  const meta = {
    name,
    subject_dn: `CN=${commonName}`,
    subject_alternative_names: names,
    algorithm: 'ec',
    ...(ca === null ? {} : { ca_id: await findAuthority(api, ca) }),
  }
  const answer = placed.parse(await api.request('key-manager', 'POST', '/v1/orders', { type: 'certificate', meta }))
  return pathOf(answer.order_ref)
}

/** The path of a certificate order of that name that has not failed, if there is one. */
export async function findOrder(api: ApiClient, name: string): Promise<string | null> {
  const { orders } = page.parse(await api.request('key-manager', 'GET', '/v1/orders?type=certificate&limit=100'))
  const found = orders.find(({ meta, status }) => meta.name === name && status !== 'ERROR')
  return found === undefined ? null : pathOf(found.order_ref)
}

/**
 * Waits for the certificate.
 * @param report gets each new message about what the order waits for
 * @returns reference of its container
 * @throws OperatorError if the order fails, or takes longer than `seconds`
 */
export async function awaitCertificate(
  api: ApiClient,
  path: string,
  seconds: number,
  report: (message: string) => void,
): Promise<string> {
  let said = ''
  const ref = await askUntil(
    async () => {
      const order = shown.parse(await api.request('key-manager', 'GET', path))
      if (order.status === 'ACTIVE' && order.container_ref !== undefined) return order.container_ref
      if (order.status === 'ERROR') throw new OperatorError(order.error_reason ?? 'The order failed.')
      const message = order.sub_status_message ?? ''
      if (message !== '' && message !== said) report(message)
      said = message
      return undefined
    },
    seconds,
    report,
  )
  if (ref !== undefined) return ref
  throw new OperatorError(
    `The certificate is not there after ${seconds} s${said === '' ? '' : `: ${said}`}. The order goes on; \`krater certificates order --continue ${path.slice(-36)}\` waits for it.`,
  )
}

async function findAuthority(api: ApiClient, wanted: string): Promise<string> {
  if (z.uuid().safeParse(wanted).success) return wanted
  for (const by of ['name', 'plugin_name']) {
    const query = new URLSearchParams({ [by]: wanted.replaceAll(/[\\%_]/g, '\\$&') })
    const { cas } = authorities.parse(await api.request('key-manager', 'GET', `/v1/cas?${query}`))
    const [ref] = cas
    if (ref !== undefined) return ref.slice(-36)
  }
  throw new OperatorError(
    `The project may use no certificate authority "${wanted}". \`krater key-manager ca list\` shows all; "acme" is there with the setting key_manager.acme.directory_url.`,
  )
}

const pathOf = (ref: string): string => new URL(ref).pathname.replace(/^.*(?=\/v1\/)/, '')
