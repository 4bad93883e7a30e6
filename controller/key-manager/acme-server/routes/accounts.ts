import * as z from 'zod'
import { type Answer, jsonAnswer } from '../../../api/answer.js'
import { ACME_PREFIX, type AcmeService, actorIn, type Call, route } from '../dialect.js'
import { AcmeProblem, malformed } from '../problem.js'
import { payloadAs, requireAccount, requireEmpty } from '../requests.js'
import {
  type AccountKey,
  isSignedWithMac,
  parseJws,
  payloadOf,
  readAccountKey,
  thumbprintOf,
  verifyWithKey,
} from '../signatures/jws.js'
import {
  type Account,
  changeContact,
  createAccount,
  deactivateAccount,
  findAccount,
  findAccountByKey,
  replaceKey,
} from '../store/accounts.js'
import { type BindingKey, openBindingKey } from '../store/binding-keys.js'
import { listOrders } from '../store/orders.js'

const base = { method: 'POST', group: 'accounts', status: 200 } as const

export const accountRoutes = [
  route({
    ...base,
    path: `${ACME_PREFIX}new-account`,
    right: 'new key',
    summary: 'Create an account, or find the one of the key',
    status: 201,
    handle: newAccount,
  }),
  route({
    ...base,
    path: `${ACME_PREFIX}account/:id`,
    right: 'account',
    summary: 'Show, change or deactivate the account',
    handle: changeAccount,
  }),
  route({
    ...base,
    path: `${ACME_PREFIX}account/:id/orders`,
    right: 'account',
    summary: 'List the orders of the account',
    handle: showOrders,
  }),
  route({
    ...base,
    path: `${ACME_PREFIX}key-change`,
    right: 'account',
    summary: 'Replace the key of the account',
    handle: changeKey,
  }),
]

const newAccountPayload = z.object({
  contact: z.unknown().optional(),
  onlyReturnExisting: z.boolean().optional(),
  externalAccountBinding: z.unknown().optional(),
})

const accountUrl = (call: Call, id: string): string => `${call.base}${ACME_PREFIX}account/${id}`

function showAccount(call: Call, status: number, account: Pick<Account, 'id' | 'status' | 'contact'>): Answer {
  const url = accountUrl(call, account.id)
  const body = { status: account.status, contact: account.contact, orders: `${url}/orders` }
  return { ...jsonAnswer(status, body), headers: { Location: url } }
}

async function newAccount(service: AcmeService, call: Call): Promise<Answer> {
  const { key, thumbprint } = call.caller
  const payload = payloadAs(call, newAccountPayload)
  const known = await findAccountByKey(service.database, thumbprint)
  if (known !== null) return showKnown(call, known)
  if (payload.onlyReturnExisting === true) {
    throw new AcmeProblem('accountDoesNotExist', 'There is no account with this key.')
  }
  const contact = readContact(payload.contact)
  const binding = await requireBinding(service, payload.externalAccountBinding, { url: call.caller.url, thumbprint })
  const account = { projectId: binding.projectId, bindingKeyId: binding.id, jwk: key, thumbprint, contact }
  const limit = { perHour: service.config.acme_server.accounts_per_hour }
  const actor = { ...actorIn(call), projectId: binding.projectId }
  const id = await createAccount(service.database, account, limit, actor)
  if (id !== null) return showAccount(call, 201, { id, status: 'valid', contact })
  const other = await findAccountByKey(service.database, thumbprint)
  if (other === null) throw unbound('The key for external account binding was revoked.')
  return showKnown(call, other)
}

/** The account that a key has: of a deactivated one nothing is shown. */
function showKnown(call: Call, account: Account): Answer {
  if (account.status === 'valid') return showAccount(call, 200, account)
  throw new AcmeProblem('unauthorized', `The account of this key is ${account.status}.`, { status: 401 })
}

const unbound = (detail: string) => new AcmeProblem('unauthorized', detail)

/** Verifies an external account binding (RFC 8555, 7.3.4). @throws AcmeProblem */
async function requireBinding(
  service: AcmeService,
  value: unknown,
  account: { url: string; thumbprint: string },
): Promise<BindingKey> {
  if (value === undefined) {
    throw new AcmeProblem(
      'externalAccountRequired',
      'An account needs an external account binding: a member of the project makes its key with `krater certificates acme-account create`.',
    )
  }
  const { jws, header } = parseJws(value, 'externalAccountBinding')
  if (header.url !== account.url) throw malformed('The url in the externalAccountBinding is not that of the request.')
  if (header.kid === undefined || header.nonce !== undefined) {
    throw malformed('The protected header of the externalAccountBinding needs kid, and must not have a nonce.')
  }
  const binding = await openBindingKey(service, header.kid)
  if (binding === null || !(await isSignedWithMac(jws, binding.key))) {
    throw unbound('The key for external account binding is unknown, was revoked, or did not make this MAC.')
  }
  const bound = readAccountKey(payloadOf(jws))
  if ((await thumbprintOf(bound)) === account.thumbprint) return binding
  throw malformed('The payload of the externalAccountBinding is not the key of the account.')
}

const MAX_CONTACTS = 10
const CONTACT = /^mailto:[^\s,?&#<>"]{1,64}@[A-Za-z0-9.-]{1,253}$/

/** @throws AcmeProblem unsupportedContact, invalidContact */
function readContact(value: unknown): string[] {
  const parsed = z.array(z.string()).max(MAX_CONTACTS).optional().safeParse(value)
  if (!parsed.success) throw malformed(`The contact must be a list of at most ${MAX_CONTACTS} URLs.`)
  const contact = parsed.data ?? []
  if (contact.some(url => !url.startsWith('mailto:'))) {
    throw new AcmeProblem('unsupportedContact', 'A contact must be a mailto: URL.')
  }
  if (contact.every(url => CONTACT.test(url) && !url.includes('\0'))) return contact
  throw new AcmeProblem('invalidContact', 'A contact must be the mailto: URL of one address.')
}

/** @throws AcmeProblem unauthorized unless the path names the account that signed */
function requireOwn(call: Call): Account {
  const account = requireAccount(call)
  if (call.params.id === account.id) return account
  throw new AcmeProblem('unauthorized', 'This is not your account.')
}

async function changeAccount({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireOwn(call)
  const { payload } = call.caller
  if (payload === null) return showAccount(call, 200, account)
  if (payload.status !== undefined) {
    if (payload.status !== 'deactivated') throw malformed('The status of an account can only become deactivated.')
    await deactivateAccount(database, account.id, actorIn(call))
    return showAccount(call, 200, { ...account, status: 'deactivated' })
  }
  if (payload.contact === undefined) return showAccount(call, 200, account)
  const contact = readContact(payload.contact)
  await changeContact(database, account.id, contact)
  return showAccount(call, 200, { ...account, contact })
}

async function showOrders({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireOwn(call)
  requireEmpty(call)
  const { ids, next } = await listOrders(database, account.id, call.argument('cursor') ?? null)
  const orders = ids.map(id => `${call.base}${ACME_PREFIX}order/${id}`)
  const link = `<${accountUrl(call, account.id)}/orders?cursor=${next}>;rel="next"`
  return { ...jsonAnswer(200, { orders }), ...(next !== null && { headers: { Link: link } }) }
}

const keyChange = z.object({ account: z.string(), oldKey: z.unknown() })

/** Replaces the key (RFC 8555, 7.3.5): the old key signs a request that the new one has signed. */
async function changeKey({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  const { key, oldKey } = await readInner(call, account)
  if ((await thumbprintOf(oldKey)) !== account.thumbprint) throw malformed('The oldKey is not the key of the account.')
  const thumbprint = await thumbprintOf(key)
  const change = { id: account.id, from: account.thumbprint, jwk: key, thumbprint }
  if (await replaceKey(database, change, actorIn(call))) return showAccount(call, 200, account)
  const holder = (await findAccountByKey(database, thumbprint)) ?? (await findAccount(database, account.id))
  throw new AcmeProblem('malformed', 'Another account has this key.', {
    status: 409,
    headers: { Location: accountUrl(call, holder?.id ?? account.id) },
  })
}

async function readInner(call: Call, account: Account): Promise<{ key: AccountKey; oldKey: AccountKey }> {
  const { jws, header } = parseJws(call.caller.payload, 'key change')
  if (header.jwk === undefined || header.kid !== undefined)
    throw malformed('The inner header must bring the new key in jwk.')
  if (header.url !== call.caller.url) throw malformed('The inner and the outer url differ.')
  if (header.nonce !== undefined) throw malformed('The inner header must not have a nonce.')
  const key = readAccountKey(header.jwk)
  await verifyWithKey(jws, key)
  const inner = keyChange.safeParse(payloadOf(jws))
  if (!inner.success || inner.data.account !== accountUrl(call, account.id)) {
    throw malformed('The inner payload must name this account and its oldKey.')
  }
  return { key, oldKey: readAccountKey(inner.data.oldKey) }
}
