import t from 'tap'
import { rotateCertificates } from '../support/worlds/rotating-certificates.js'

t.test('certificates, names, CAs and revocation lists change under load, without a failure or a reload', t =>
  rotateCertificates(t, 20),
)
