import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { describeCertificates } from '../../../amphora-agent/metrics/certificates.js'
import { makePair } from '../../support/inputs/certificates.js'

/** Metrics of the certificates that listeners serve. */

const LISTENER = '22222222-0000-4000-8000-000000000001'
const CONTAINER = '77777777-0000-4000-8000-000000000001'

const alarms = { mismatches: 2, takenBack: 3 }

t.test('without certificates there are no metrics', async t => {
  t.equal(describeCertificates(join(t.testdir({}), 'absent'), alarms), '')
  t.equal(describeCertificates(t.testdir({}), alarms), '')
})

t.test('each certificate of a listener says when it expires', async t => {
  const directory = t.testdir({})
  mkdirSync(join(directory, 'tls'))
  const paths = [`tls/${LISTENER}.default.pem`, `tls/${CONTAINER}.pem`]
  for (const path of paths) writeFileSync(join(directory, path), makePair({ subject: '/CN=a.example' }).certificate)
  const manifest = {
    files: Object.fromEntries(paths.map(path => [path, path])),
    lists: { [`tls/${LISTENER}.list`]: [...paths, 'tls/absent.pem'] },
    missing: [{ ref: 'r', reason: 'away' }],
    stored: [],
  }
  writeFileSync(join(directory, 'tls.json'), JSON.stringify(manifest))
  const lines = describeCertificates(directory, alarms).split('\n')
  const [first, second] = lines.filter(line => line.startsWith('krater_certificate_expiry_timestamp_seconds{'))
  t.match(first, new RegExp(`listener="${LISTENER}",certificate="default"} \\d{10}$`))
  t.match(second, new RegExp(`listener="${LISTENER}",certificate="${CONTAINER}"} \\d{10}$`))
  t.ok(Number(second?.split(' ').at(-1)) > Date.now() / 1000)
  t.ok(lines.includes('krater_certificate_references_missing 1'))
  t.ok(lines.includes('krater_certificate_mismatches 2'))
  t.ok(lines.includes('krater_certificates_taken_back_total 3'))
})
