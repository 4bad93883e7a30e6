import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { outgoingOf, provideTls } from '../../../amphora-agent/tls/files.js'

const LIST = 'tls/listener.list'
const before = { lists: { [LIST]: ['default', 'former'] }, outgoing: {} }
const exchanging = { lists: { [LIST]: ['default', 'next', 'former'] }, outgoing: { [LIST]: ['former'] } }
const waitFor = (...names: string[]) => new Set(names)

t.test('a certificate that is exchanged while the key manager is away stays until its successor is read', async t => {
  t.same(outgoingOf(before, LIST, ['default', 'next'], waitFor('next')), ['former'])
  t.same(outgoingOf(exchanging, LIST, ['default', 'next'], waitFor('next')), ['former'], 'at each attempt')
  t.same(outgoingOf(exchanging, LIST, ['default', 'next'], waitFor()), [], 'it goes once that is read')
})

t.test('two exchanges at such a time keep what was served before both', async t => {
  const outgoing = outgoingOf(exchanging, LIST, ['default', 'last'], waitFor('last'))
  t.ok(outgoing.includes('former'))
})

t.test('what is only removed goes at once', async t => {
  t.same(outgoingOf(before, LIST, ['default'], waitFor()), [])
  t.same(outgoingOf(before, LIST, ['default'], waitFor('default')), [], 'even if another one cannot be read')
  const three = { ...exchanging, lists: { [LIST]: ['default', 'next', 'third', 'former'] } }
  t.same(outgoingOf(three, LIST, ['default', 'next'], waitFor('next')), ['former'], 'or if one still waits')
})

t.test('a certificate that is wanted again is not outgoing', async t => {
  t.same(outgoingOf(exchanging, LIST, ['default', 'next', 'former'], waitFor('next')), [])
})

t.test('a machine that starts just after a renewal serves the new certificate, not a placeholder', async t => {
  const directory = t.testdir({})
  const path = 'tls/listener.default.pem'
  const file = { path, kind: 'certificate', ref: `https://keys/v1/secrets/${randomUUID()}`, digest: 'former' } as const
  const tls = { files: [file], lists: [{ path: LIST, listenerId: randomUUID(), certificates: [path] }] }
  const keyManager = {
    read: async () => ({ pem: 'renewed', digest: 'next' }),
    lend: () => {},
    credential: () => null,
    close: () => {},
  }
  const { missing } = await provideTls(keyManager, { tls }, directory, null)
  t.equal(readFileSync(`${directory}/${path}`, 'utf8'), 'renewed')
  t.match(missing, [{ reason: /it has changed/ }], 'the controller is told')
  writeFileSync(`${directory}/${path}`, 'former')
  await provideTls(keyManager, { tls }, directory, directory)
  t.equal(readFileSync(`${directory}/${path}`, 'utf8'), 'former', 'what serves stays until the controller exchanges it')
})

t.test('a new list has nothing to keep', async t => {
  t.same(outgoingOf({ lists: {}, outgoing: {} }, LIST, ['default'], waitFor('default')), [])
})
