import * as z from 'zod'
import { type ApiClient, signInAsCaller } from '../../api-client.js'
import type { Command } from '../../command.js'
import { print, table } from '../../terminal.js'

const used = z.object({
  loadbalancer_id: z.string(),
  ref: z.string(),
  kind: z.string(),
  names: z.array(z.string()),
  issuer: z.string().nullable(),
  not_after: z.string().nullable(),
  problem: z.string().nullable(),
  proven_at: z.string().nullable(),
  mismatch: z.string().nullable(),
})
const usedPage = z.object({ certificates: z.array(used) })
const renewed = z.object({ container_ref: z.string(), next_renewal_at: z.string().nullable() })
const renewedPage = z.object({ certificates: z.array(z.looseObject({ container_ref: z.string() })), total: z.number() })

type Used = z.output<typeof used>

const PAGE_SIZE = 100

export const command: Command = {
  run: async directory => {
    const api = await signInAsCaller(directory)
    const { certificates } = usedPage.parse(await api.request('load-balancer', 'GET', '/v2/lbaas/certificates'))
    const all = certificates.filter(({ kind }) => kind === 'certificate')
    if (all.length === 0) {
      print('No load balancer of the project uses a certificate.')
      return
    }
    const renewals = await readRenewals(api)
    const rows = all
      .sort((a, b) => ((a.not_after ?? '') < (b.not_after ?? '') ? -1 : 1))
      .map(one => [
        one.names.join(' '),
        one.issuer ?? '',
        one.not_after ?? 'unknown',
        one.loadbalancer_id,
        renewals.get(one.ref.slice(-36)) ?? '-',
        proofOf(one),
      ])
    for (const line of table([['names', 'issuer', 'until', 'load balancer', 'next renewal', 'last proof'], ...rows]))
      print(line)
    for (const { ref, problem } of all.filter(one => one.problem !== null)) print(`${ref}: ${problem}`)
  },
}

const proofOf = ({ mismatch, proven_at }: Used): string =>
  mismatch !== null ? `MISMATCH: ${mismatch}` : (proven_at ?? 'none yet')

/** When certificates that orders issued are renewed next, by the id of their container. */
async function readRenewals(api: ApiClient): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for (let read = 0; ; ) {
    const path = `/v1/certificates?limit=${PAGE_SIZE}&offset=${read}`
    const { certificates, total } = renewedPage.parse(await api.request('key-manager', 'GET', path))
    for (const one of certificates) {
      const { container_ref, next_renewal_at } = renewed.parse(one)
      if (next_renewal_at !== null) found.set(container_ref.slice(-36), next_renewal_at)
    }
    read += certificates.length
    if (certificates.length === 0 || read >= total) return found
  }
}
