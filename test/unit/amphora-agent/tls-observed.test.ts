import t from 'tap'
import { expectedOf, isSame, parseLoaded } from '../../../amphora-agent/tls/observed.js'
import { makePair } from '../../support/inputs/certificates.js'

/** What HAProxy shows of its certificates and CAs, against the files. */

const [first, second, third] = ['Zebra', 'Alpha', 'Mid'].map(name => makePair({ subject: `/CN=${name}` }).certificate)
const fingerprints = (pem: string) => expectedOf(pem, false).fingerprints
const shown = (...pems: string[]) =>
  parseLoaded(pems.map(pem => `SHA1 FingerPrint: ${fingerprints(pem)[0]?.toUpperCase()}`).join('\n'))

t.test('a CA file is as it should be whatever the order of its certificates, and if one is in it twice', async t => {
  const expected = expectedOf(`${first}${second}${third}${first}`, false)
  t.ok(isSame(shown(second!, third!, first!), expected))
  t.notOk(isSame(shown(second!, third!), expected), 'one is missing')
  t.notOk(isSame(shown(second!, third!, first!), expectedOf(`${first}${second}`, false)), 'one is too many')
  t.notOk(isSame(shown(second!), expectedOf(third!, false)), 'another one')
})

t.test('a chain counts by its first certificate and its length', async t => {
  const expected = expectedOf(`${first}${second}`, true)
  t.ok(isSame({ ...shown(first!), chainLength: 1 }, expected))
  t.notOk(isSame({ ...shown(first!), chainLength: 0 }, expected), 'it is cut short')
  t.notOk(isSame({ ...shown(second!), chainLength: 1 }, expected))
})
