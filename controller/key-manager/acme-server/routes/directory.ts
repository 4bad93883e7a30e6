import { jsonAnswer } from '../../../api/answer.js'
import { ACME_PREFIX, openRoute } from '../dialect.js'

const base = { group: 'directory', path: `${ACME_PREFIX}new-nonce` } as const

/** What a client needs before it signs anything. */
export const directoryRoutes = [
  openRoute({
    ...base,
    method: 'GET',
    path: `${ACME_PREFIX}directory`,
    summary: 'The URLs of all operations',
    status: 200,
    handle: async (_service, call) => {
      const url = (name: string) => `${call.base}${ACME_PREFIX}${name}`
      return jsonAnswer(200, {
        newNonce: url('new-nonce'),
        newAccount: url('new-account'),
        newOrder: url('new-order'),
        revokeCert: url('revoke-cert'),
        keyChange: url('key-change'),
        renewalInfo: url('renewal-info'),
        meta: { externalAccountRequired: true },
      })
    },
  }),
  openRoute({
    ...base,
    method: 'HEAD',
    summary: 'A new nonce',
    status: 200,
    handle: async ({ nonces }) => ({ status: 200, headers: { 'Replay-Nonce': await nonces.issue() } }),
  }),
  openRoute({
    ...base,
    method: 'GET',
    summary: 'A new nonce',
    status: 204,
    handle: async ({ nonces }) => ({ status: 204, headers: { 'Replay-Nonce': await nonces.issue() } }),
  }),
]
