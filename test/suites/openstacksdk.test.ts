import { execFile } from 'node:child_process'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { clientEnvironment, clientPython } from '../support/clients/openstack-session.js'
import { storeCertificates } from '../support/inputs/stored-certificates.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

const script = join(dirname(dirname(fileURLToPath(import.meta.url))), 'support/clients/openstacksdk.py')

type Finding = { name: string; got: unknown; expected: unknown }

t.test('every method of openstacksdk’s load balancer proxy', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t, NOOP_DRIVERS)
  const { container } = await storeCertificates(await krater.api())
  const { stdout, stderr } = await promisify(execFile)(clientPython(), [script], {
    env: { ...clientEnvironment(krater, 'krater'), PYTHONDONTWRITEBYTECODE: '1', TLS_CONTAINER: container },
    timeout: 240_000,
    maxBuffer: 16 * 1024 * 1024,
  }).catch(({ stdout, stderr }: { stdout: string; stderr: string }) => ({ stdout, stderr }))
  const findings = stdout
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as Finding)
  for (const { name, got, expected } of findings) t.strictSame(got, expected, name)
  t.equal(stderr, '', 'the script finished')
  t.equal(findings.at(-1)?.name, 'methods that nothing above calls')
})
