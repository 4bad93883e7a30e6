import t from 'tap'
import { rotateCertificates } from '../support/worlds/rotating-certificates.js'

/** As in end-to-end/, for as long as a listener may live. */
t.setTimeout(1_100_000)

t.test('500 changes under load, without a failure or a reload', t => rotateCertificates(t, 500))
